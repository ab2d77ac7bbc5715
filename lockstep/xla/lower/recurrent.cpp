#include "lockstep/xla/lower/recurrent.h"

#include "lockstep/xla/graph/ops/scan.h"
#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Part `i` of the last dimension, of `size` entries.
Value gate(const Value& gates, int64_t i, int64_t size) {
  Shape begin(gates->shape.size(), 0), end = gates->shape;
  begin.back() = i * size;
  end.back() = (i + 1) * size;
  return slice(gates, begin, end);
}

Value joined_gates(const std::vector<Value>& gates) { return concatenate(gates, rank(gates[0]) - 1); }

/// [batch, hidden] x [gates, hidden] -> [batch, gates].
Value from_hidden(const Value& hidden, const Value& weight) { return dot(hidden, weight, {}, {}, {1}, {1}); }
/// [batch, gates] x [gates, hidden] -> [batch, hidden].
Value to_hidden(const Value& gates, const Value& weight) { return dot(gates, weight, {}, {}, {1}, {0}); }

/// The slopes of activations, from their values.
Value sigmoid_slope(const Value& a) { return a * (1 - a); }
Value tanh_slope(const Value& a) { return 1 - a * a; }

ScanValues lstm_step(const ScanOperands& in, bool for_gradient) {  // gates | hidden cell | weight
  const Value hidden = in.carries[0], cell = in.carries[1];
  const int64_t size = hidden->shape[1];
  const Value gates = in.sequences[0] + from_hidden(hidden, in.constants[0]);
  const Value enter = sigmoid(gate(gates, 0, size)), keep = sigmoid(gate(gates, 1, size));
  const Value fresh = tanh(gate(gates, 2, size)), leave = sigmoid(gate(gates, 3, size));
  const Value next = keep * cell + enter * fresh;
  const Value out = leave * tanh(next);
  ScanValues step{{out, next}, {out}};
  if (for_gradient) step.outputs.insert(step.outputs.end(), {joined_gates({enter, keep, fresh, leave}), next});
  return step;
}

/// Gradients of hidden, activations, cells, cells before | gradients of hidden, cell | weight.
ScanValues lstm_gradient_step(const ScanOperands& in) {
  const Value gates = in.sequences[1], before = in.sequences[3];
  const int64_t size = before->shape[1];
  const Value enter = gate(gates, 0, size), keep = gate(gates, 1, size);
  const Value fresh = gate(gates, 2, size), leave = gate(gates, 3, size);
  const Value of_hidden = in.sequences[0] + in.carries[0];
  const Value shown = tanh(in.sequences[2]);
  const Value of_cell = in.carries[1] + of_hidden * leave * tanh_slope(shown);
  const Value of_gates = joined_gates({of_cell * fresh * sigmoid_slope(enter), of_cell * before * sigmoid_slope(keep),
                                       of_cell * enter * tanh_slope(fresh), of_hidden * shown * sigmoid_slope(leave)});
  return {{to_hidden(of_gates, in.constants[0]), of_cell * keep}, {of_gates}};
}

ScanValues gru_step(const ScanOperands& in, bool for_gradient) {  // gates | hidden | weight bias
  const Value hidden = in.carries[0];
  const int64_t size = hidden->shape[1];
  Value own = from_hidden(hidden, in.constants[0]);
  if (in.constants.size() > 1) own = own + in.constants[1];
  const Value& gates = in.sequences[0];
  const Value reset = sigmoid(gate(gates, 0, size) + gate(own, 0, size));
  const Value keep = sigmoid(gate(gates, 1, size) + gate(own, 1, size));
  const Value own_fresh = gate(own, 2, size);
  const Value fresh = tanh(gate(gates, 2, size) + reset * own_fresh);
  const Value out = (hidden - fresh) * keep + fresh;
  ScanValues step{{out}, {out}};
  if (for_gradient) step.outputs.push_back(joined_gates({reset, keep, fresh, own_fresh}));
  return step;
}

/// Gradients of hidden, activations, hidden before | gradient of hidden | weight. Returns the gradients of both parts
/// of the gates: the input's and that of the hidden state.
ScanValues gru_gradient_step(const ScanOperands& in) {
  const Value gates = in.sequences[1], before = in.sequences[2];
  const int64_t size = before->shape[1];
  const Value reset = gate(gates, 0, size), keep = gate(gates, 1, size);
  const Value fresh = gate(gates, 2, size), own_fresh = gate(gates, 3, size);
  const Value of_hidden = in.sequences[0] + in.carries[0];
  const Value of_keep = of_hidden * (before - fresh) * sigmoid_slope(keep);
  const Value of_fresh = of_hidden * (1 - keep) * tanh_slope(fresh);
  const Value of_reset = of_fresh * own_fresh * sigmoid_slope(reset);
  const Value of_own = joined_gates({of_reset, of_keep, of_fresh * reset});
  return {{of_hidden * keep + to_hidden(of_own, in.constants[0])},
          {joined_gates({of_reset, of_keep, of_fresh}), of_own}};
}

ScanValues simple_step(const ScanOperands& in, CellKind kind) {  // gates | hidden | weight
  const Value sum = in.sequences[0] + from_hidden(in.carries[0], in.constants[0]);
  const Value out = kind == CellKind::Tanh ? tanh(sum) : maximum(sum, 0);
  return {{out}, {out}};
}

/// Gradients of hidden, hidden | gradient of hidden | weight.
ScanValues simple_gradient_step(const ScanOperands& in, CellKind kind) {
  const Value of_hidden = in.sequences[0] + in.carries[0], out = in.sequences[1];
  const Value of_gates =
      kind == CellKind::Tanh ? of_hidden * tanh_slope(out) : select(compare(Comparison::LE, out, 0), 0, of_hidden);
  return {{to_hidden(of_gates, in.constants[0])}, {of_gates}};
}

/// The states before each step, from those after it.
Value states_before(const Value& states, const Value& first, bool reverse) {
  Shape begin(states->shape.size(), 0), end = states->shape, one = states->shape;
  one[0] = 1;
  (reverse ? begin[0] : end[0]) += reverse ? 1 : -1;
  const Value initial = reshape(first, one), others = slice(states, begin, end);
  if (states->shape[0] == 1) return initial;
  return reverse ? concatenate({others, initial}, 0) : concatenate({initial, others}, 0);
}

/// Where a sequence has no element, its states stay as they were.
ScanValues masked_step(const ScanOperands& in, ScanValues step, const Value& mask) {
  if (!mask) return step;
  for (size_t i = 0; i < step.carries.size(); ++i) step.carries[i] = select(mask, step.carries[i], in.carries[i]);
  step.outputs[0] = step.carries[0];
  if (step.outputs.size() > 2) step.outputs[2] = step.carries[1];
  return step;
}

/// There, gradients of states pass through, and those of gates are zero.
ScanValues masked_gradient_step(const ScanOperands& in, ScanValues step, const Value& mask) {
  if (!mask) return step;
  step.carries[0] = select(mask, step.carries[0], in.sequences[0] + in.carries[0]);
  if (step.carries.size() > 1) step.carries[1] = select(mask, step.carries[1], in.carries[1]);
  for (Value& output : step.outputs) output = select(mask, output, 0);
  return step;
}

/// Adds the mask to the sequences of a loop, if there is one, and gives it to `step`.
template <class Step>
ScanValues scan_with_mask(ScanOperands in, const Value& mask, Step&& step) {
  if (mask) in.sequences.push_back(mask);
  return scan(in, [&](const ScanOperands& inside) { return step(inside, mask ? inside.sequences.back() : Value()); });
}

Recurrence widened_layer(Recurrence layer) {
  for (Value* value : {&layer.gates, &layer.hidden, &layer.cell, &layer.weight, &layer.bias}) {
    if (*value) *value = widened(*value);
  }
  return layer;
}

ScanValues gradient_step(const ScanOperands& in, CellKind kind) {
  switch (kind) {
    case CellKind::Lstm:
      return lstm_gradient_step(in);
    case CellKind::Gru:
      return gru_gradient_step(in);
    default:
      return simple_gradient_step(in, kind);
  }
}

ScanValues forward_step(const ScanOperands& in, CellKind kind, bool for_gradient) {
  switch (kind) {
    case CellKind::Lstm:
      return lstm_step(in, for_gradient);
    case CellKind::Gru:
      return gru_step(in, for_gradient);
    default:
      return simple_step(in, kind);
  }
}

/// The loop of the gradients; its outputs are those of the gates.
ScanValues gradient_loop(const Recurrence& layer, const RecurrenceValues& values, const Value& of_hidden,
                         const Value& of_last_cell, const Value& hidden_before) {
  ScanOperands in{{of_hidden}, {fill(0, of_hidden->dtype, layer.hidden->shape)}, {layer.weight}, !layer.reverse};
  switch (layer.kind) {
    case CellKind::Lstm:
      in.sequences.insert(in.sequences.end(),
                          {values.activations, values.cells, states_before(values.cells, layer.cell, layer.reverse)});
      in.carries.push_back(of_last_cell);
      break;
    case CellKind::Gru:
      in.sequences.insert(in.sequences.end(), {values.activations, hidden_before});
      break;
    default:
      in.sequences.push_back(widened(values.hidden));
  }
  return scan_with_mask(in, layer.mask, [&](const ScanOperands& inside, const Value& mask) {
    return masked_gradient_step(inside, gradient_step(inside, layer.kind), mask);
  });
}

}  // namespace

int64_t num_gates(CellKind kind) { return kind == CellKind::Lstm ? 4 : kind == CellKind::Gru ? 3 : 1; }

RecurrenceValues recurrence(const Recurrence& given, bool for_gradient) {
  const Dtype dtype = given.gates->dtype;
  const Recurrence layer = widened_layer(given);
  ScanOperands in{{layer.gates}, {layer.hidden}, {layer.weight}, layer.reverse};
  if (layer.cell) in.carries.push_back(layer.cell);
  if (layer.bias) in.constants.push_back(layer.bias);
  const ScanValues all = scan_with_mask(in, layer.mask, [&](const ScanOperands& inside, const Value& mask) {
    return masked_step(inside, forward_step(inside, layer.kind, for_gradient), mask);
  });
  RecurrenceValues values;
  values.hidden = convert(all.outputs[0], dtype);
  if (layer.kind == CellKind::Lstm) values.last_cell = convert(all.carries[1], dtype);
  if (all.outputs.size() > 1) values.activations = all.outputs[1];
  if (all.outputs.size() > 2) values.cells = all.outputs[2];
  return values;
}

RecurrenceGradients recurrence_gradients(const Recurrence& given, const RecurrenceValues& values,
                                         const Value& of_hidden, const Value& of_last_cell) {
  const Dtype dtype = given.gates->dtype;
  const Recurrence layer = widened_layer(given);
  const Value hidden_before = states_before(widened(values.hidden), layer.hidden, layer.reverse);
  const ScanValues all =
      gradient_loop(layer, values, widened(of_hidden), of_last_cell ? widened(of_last_cell) : Value(), hidden_before);
  const Value of_gates = all.outputs[0], of_own = all.outputs.back();
  RecurrenceGradients gradients;
  gradients.gates = convert(of_gates, dtype);
  gradients.hidden = convert(all.carries[0], dtype);
  if (layer.cell) gradients.cell = convert(all.carries[1], dtype);
  gradients.weight = convert(dot(of_own, hidden_before, {}, {}, {0, 1}, {0, 1}), dtype);
  if (layer.bias) gradients.bias = convert(sum(of_own, {0, 1}), dtype);
  return gradients;
}

}  // namespace lockstep::xla
