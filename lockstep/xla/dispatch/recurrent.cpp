#include "lockstep/xla/lower/recurrent.h"

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/placement.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/dispatch/register.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Kernels of recurrent layers. LibTorch composes them of single steps above autograd; these replace the steps of a
/// layer by a loop, with its own derivative.
namespace lockstep::xla {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

const char* function_name(CellKind kind) {
  switch (kind) {
    case CellKind::Lstm:
      return "aten::lstm";
    case CellKind::Gru:
      return "aten::gru";
    case CellKind::Tanh:
      return "aten::rnn_tanh";
    case CellKind::Relu:
      return "aten::rnn_relu";
  }
  return "";
}

Value value_or_null(const Tensor& tensor) { return tensor.defined() ? read(tensor) : Value(); }

/// The tensors of one layer in one direction: see Recurrence.
struct LayerTensors {
  CellKind kind;
  bool reverse;
  Tensor gates, hidden, cell, weight, bias, mask;

  Recurrence values() const {
    return {kind,
            reverse,
            read(gates),
            read(hidden),
            value_or_null(cell),
            read(weight),
            value_or_null(bias),
            value_or_null(mask)};
  }

  variable_list tensors() const { return {gates, hidden, cell, weight, bias}; }
};

/// The same, of single steps that autograd can differentiate any number of times.
variable_list unrolled(const LayerTensors& layer) {
  const int64_t length = layer.gates.size(0);
  std::vector<Tensor> states(static_cast<size_t>(length));
  Tensor hidden = layer.hidden, cell = layer.cell;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t position = layer.reverse ? length - 1 - i : i;
    const Tensor gates = layer.gates[position], last_hidden = hidden, last_cell = cell;
    const Tensor own = at::linear(hidden, layer.weight, layer.bias);
    if (layer.kind == CellKind::Lstm) {
      const auto parts = (gates + own).chunk(4, 1);
      cell = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
      hidden = parts[3].sigmoid() * cell.tanh();
    } else if (layer.kind == CellKind::Gru) {
      const auto of_input = gates.chunk(3, 1), of_hidden = own.chunk(3, 1);
      const Tensor fresh = (of_input[2] + (of_input[0] + of_hidden[0]).sigmoid() * of_hidden[2]).tanh();
      hidden = (hidden - fresh) * (of_input[1] + of_hidden[1]).sigmoid() + fresh;
    } else {
      hidden = layer.kind == CellKind::Tanh ? (gates + own).tanh() : (gates + own).relu();
    }
    if (layer.mask.defined()) {
      hidden = at::where(layer.mask[position], hidden, last_hidden);
      if (cell.defined()) cell = at::where(layer.mask[position], cell, last_cell);
    }
    states[static_cast<size_t>(position)] = hidden;
  }
  variable_list results{at::stack(states)};
  if (layer.kind == CellKind::Lstm) results.push_back(cell);
  return results;
}

/// Gradients that can be differentiated again.
variable_list differentiable_gradients(const LayerTensors& layer, const variable_list& of_results) {
  variable_list inputs;
  for (const Tensor& tensor : layer.tensors()) {
    if (tensor.defined() && tensor.requires_grad()) inputs.push_back(tensor);
  }
  const variable_list found = torch::autograd::grad(unrolled(layer), inputs, of_results, /*retain_graph=*/true,
                                                    /*create_graph=*/true, /*allow_unused=*/true);
  variable_list gradients;
  size_t next = 0;
  for (const Tensor& tensor : layer.tensors()) {
    gradients.push_back(tensor.defined() && tensor.requires_grad() ? found[next++] : Tensor());
  }
  return gradients;
}

struct RecurrenceFunction : torch::autograd::Function<RecurrenceFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& gates, const Tensor& hidden, const Tensor& cell,
                               const Tensor& weight, const Tensor& bias, const Tensor& mask, int64_t kind, bool reverse,
                               bool has_bias, bool has_mask, bool for_gradient) {
    const bool has_cell = static_cast<CellKind>(kind) == CellKind::Lstm;
    const LayerTensors layer{static_cast<CellKind>(kind),
                             reverse,
                             gates,
                             hidden,
                             has_cell ? cell : Tensor(),
                             weight,
                             has_bias ? bias : Tensor(),
                             has_mask ? mask : Tensor()};
    const OriginGuard origin(function_name(layer.kind));
    XlaDevice& device = storage_of(gates)->device();
    device.note(function_name(layer.kind));
    detail::count_traced();
    const RecurrenceValues values = recurrence(layer.values(), for_gradient);
    const auto wrapped = [&](const Value& value) { return value ? wrap(value, device) : Tensor(); };
    variable_list results{wrapped(values.hidden)};
    if (values.last_cell) results.push_back(wrapped(values.last_cell));
    if (for_gradient) {
      context->saved_data["kind"] = kind;
      context->saved_data["reverse"] = reverse;
      context->save_for_backward({gates, hidden, layer.cell, weight, layer.bias, layer.mask, results[0],
                                  wrapped(values.activations), wrapped(values.cells)});
    }
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list of_results) {
    const variable_list saved = context->get_saved_variables();
    const LayerTensors layer{static_cast<CellKind>(context->saved_data["kind"].toInt()),
                             context->saved_data["reverse"].toBool(),
                             saved[0],
                             saved[1],
                             saved[2],
                             saved[3],
                             saved[4],
                             saved[5]};
    variable_list gradients = at::GradMode::is_enabled() ? differentiable_gradients(layer, of_results)
                                                         : simple_gradients(layer, saved, of_results);
    gradients.resize(11);  // none for the mask, the kind and the flags
    return gradients;
  }

 private:
  static variable_list simple_gradients(const LayerTensors& layer, const variable_list& saved,
                                        const variable_list& of_results) {
    const OriginGuard origin(function_name(layer.kind));
    XlaDevice& device = storage_of(layer.gates)->device();
    device.note(function_name(layer.kind));
    detail::count_traced();
    const RecurrenceValues values{read(saved[6]), {}, value_or_null(saved[7]), value_or_null(saved[8])};
    const RecurrenceGradients found = recurrence_gradients(
        layer.values(), values, read(of_results[0]), of_results.size() > 1 ? value_or_null(of_results[1]) : Value());
    variable_list gradients;
    for (const Value& gradient : {found.gates, found.hidden, found.cell, found.weight, found.bias}) {
      gradients.push_back(gradient ? wrap(gradient, device) : Tensor());
    }
    return gradients;
  }
};

/// Packed sequences, the longest first: element t of all sequences that have one, for each t, one behind the other.
struct Packing {
  int64_t length = 0, batch = 0;
  /// For each element and sequence the row of the packed data; any row where there is none.
  Tensor rows;
  /// For each row of the packed data its position among these.
  Tensor positions;
  Tensor mask;

  /// `batch_sizes` is on the CPU: how many sequences have an element t.
  Packing(const Tensor& batch_sizes, const at::Device& device)
      : length(batch_sizes.numel()), batch(batch_sizes[0].item<int64_t>()) {
    std::vector<int64_t> row_list, position_list;
    std::vector<uint8_t> mask_list;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t present = batch_sizes[t].item<int64_t>();
      const auto first = static_cast<int64_t>(position_list.size());
      for (int64_t i = 0; i < batch; ++i) {
        row_list.push_back(i < present ? first + i : 0);
        mask_list.push_back(i < present ? 1 : 0);
        if (i < present) position_list.push_back(t * batch + i);
      }
    }
    const auto sent = [&](auto& list, at::ScalarType dtype) {
      return at::from_blob(list.data(), {static_cast<int64_t>(list.size())}, at::device(at::kCPU).dtype(dtype))
          .clone()
          .to(device);
    };
    rows = sent(row_list, at::kLong);
    positions = sent(position_list, at::kLong);
    mask = sent(mask_list, at::kByte).to(at::kBool).view({length, batch, 1});
  }

  Tensor unpacked(const Tensor& data) const { return data.index_select(0, rows).view({length, batch, data.size(1)}); }
  Tensor packed(const Tensor& states) const { return states.reshape({length * batch, -1}).index_select(0, positions); }
};

/// A call of lstm, gru, rnn_tanh or rnn_relu.
struct RecurrentCall {
  CellKind kind;
  /// [time, batch, input], with `batch_first` [batch, time, input]; packed: [rows, input].
  Tensor input;
  /// Packed: how many sequences have an element t, on the CPU. Undefined for others.
  Tensor batch_sizes;
  /// [layers x directions, batch, hidden]; the cell state of an LSTM.
  Tensor hidden, cell;
  std::vector<Tensor> parameters;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t num_directions() const { return bidirectional ? 2 : 1; }
  int64_t tensors_of_layer() const { return has_biases ? 4 : 2; }

  /// Whether it is computed by loops. Other calls, among them those with wrong sizes, are LibTorch's.
  bool is_covered() const {
    const auto count = static_cast<size_t>(num_layers * num_directions() * tensors_of_layer());
    if (input.dim() != (is_packed() ? 2 : 3) || hidden.dim() != 3 || parameters.size() != count) return false;
    if (input.numel() == 0 || (is_packed() && !is_packing_valid())) return false;
    const int64_t size = hidden.size(2), gates = num_gates(kind) * size;
    const int64_t batch = is_packed() ? batch_sizes[0].item<int64_t>() : input.size(batch_first ? 0 : 1);
    const std::vector<int64_t> states{num_layers * num_directions(), batch, size};
    if (size == 0 || hidden.sizes() != states || (kind == CellKind::Lstm && cell.sizes() != states)) return false;
    for (size_t i = 0; i < count; i += static_cast<size_t>(tensors_of_layer())) {
      const int64_t before = i < count / static_cast<size_t>(num_layers) ? input.size(-1) : size * num_directions();
      if (parameters[i].sizes() != at::IntArrayRef{gates, before}) return false;
      if (parameters[i + 1].sizes() != at::IntArrayRef{gates, size}) return false;
    }
    return is_floating_and_here();
  }

  bool is_packed() const { return batch_sizes.defined(); }

  /// Whether the sizes decrease, and sum up to the rows.
  bool is_packing_valid() const {
    if (!batch_sizes.is_cpu() || batch_sizes.dim() != 1 || batch_sizes.numel() == 0) return false;
    if (batch_sizes.scalar_type() != at::kLong || batch_sizes.sum().item<int64_t>() != input.size(0)) return false;
    const int64_t steps = batch_sizes.numel() - 1;
    return batch_sizes.min().item<int64_t>() > 0 &&
           batch_sizes.narrow(0, 0, steps).ge(batch_sizes.narrow(0, 1, steps)).all().item<bool>();
  }

  bool is_floating_and_here() const {
    std::vector<Tensor> all = parameters;
    all.insert(all.end(), {input, hidden});
    if (kind == CellKind::Lstm) all.push_back(cell);
    for (const Tensor& tensor : all) {
      if (storage_of(tensor) == nullptr || tensor.device() != input.device()) return false;
      if (tensor.scalar_type() != input.scalar_type()) return false;
    }
    return is_float(input.scalar_type());
  }

  /// One layer in one direction; returns the states after each step and the last ones.
  std::array<Tensor, 3> direction(const Tensor& sequence, const Packing* packing, int64_t layer, bool reverse) const {
    const int64_t index = layer * num_directions() + (reverse ? 1 : 0);
    const Tensor* const own = &parameters[static_cast<size_t>(index * tensors_of_layer())];
    const bool is_gru = kind == CellKind::Gru;
    Tensor bias;
    if (has_biases) bias = is_gru ? own[2] : own[2] + own[3];
    const Tensor of_hidden = has_biases && is_gru ? own[3] : Tensor();
    const Tensor projected = at::linear(sequence, own[0], bias);
    const Tensor gates = packing != nullptr ? packing->unpacked(projected) : projected;
    const Tensor first_hidden = hidden[index], first_cell = kind == CellKind::Lstm ? cell[index] : Tensor();
    bool for_gradient = false;
    for (const Tensor& tensor : {gates, first_hidden, first_cell, own[1], of_hidden}) {
      for_gradient = for_gradient || (tensor.defined() && tensor.requires_grad());
    }
    const Tensor mask = packing != nullptr ? packing->mask : Tensor();
    // Functions of autograd take defined tensors only.
    const auto or_any = [&](const Tensor& tensor) { return tensor.defined() ? tensor : gates.detach(); };
    const variable_list found = RecurrenceFunction::apply(
        gates, first_hidden, or_any(first_cell), own[1], or_any(of_hidden), or_any(mask), static_cast<int64_t>(kind),
        reverse, of_hidden.defined(), mask.defined(), for_gradient && at::GradMode::is_enabled());
    const Tensor output = packing != nullptr ? packing->packed(found[0]) : found[0];
    return {output, found[0][reverse ? 0 : -1], found.size() > 1 ? found[1] : Tensor()};
  }

  /// Output, hidden state and, for an LSTM, cell state after the last step.
  std::vector<Tensor> run() const {
    std::optional<Packing> packing;
    if (is_packed()) packing.emplace(batch_sizes, input.device());
    Tensor sequence = batch_first ? input.transpose(0, 1) : input;
    std::vector<Tensor> last_hidden, last_cell;
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      std::vector<Tensor> outputs;
      for (int64_t i = 0; i < num_directions(); ++i) {
        auto [output, of_hidden, of_cell] = direction(sequence, packing ? &*packing : nullptr, layer, i == 1);
        outputs.push_back(output);
        last_hidden.push_back(of_hidden);
        if (of_cell.defined()) last_cell.push_back(of_cell);
      }
      sequence = bidirectional ? at::cat(outputs, -1) : outputs[0];
      if (dropout != 0 && train && layer + 1 < num_layers) sequence = at::dropout(sequence, dropout, true);
    }
    std::vector<Tensor> results{batch_first ? sequence.transpose(0, 1) : sequence, at::stack(last_hidden)};
    if (kind == CellKind::Lstm) results.push_back(at::stack(last_cell));
    return results;
  }

  /// LibTorch's own composition of single steps.
  std::vector<Tensor> composed(const std::vector<Tensor>& states) const {
    if (kind == CellKind::Lstm) {
      const auto [output, last_hidden, last_cell] =
          is_packed() ? at::native::lstm(input, batch_sizes, states, parameters, has_biases, num_layers, dropout, train,
                                         bidirectional)
                      : at::native::lstm(input, states, parameters, has_biases, num_layers, dropout, train,
                                         bidirectional, batch_first);
      return {output, last_hidden, last_cell};
    }
    const auto call = [&](auto function) {
      const std::tuple<Tensor, Tensor> found =
          is_packed()
              ? function(input, batch_sizes, hidden, parameters, has_biases, num_layers, dropout, train, bidirectional)
              : function(input, hidden, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first);
      return std::vector<Tensor>{std::get<0>(found), std::get<1>(found)};
    };
    switch (kind) {
      case CellKind::Gru:
        return call([](auto&&... all) { return at::native::gru(all...); });
      case CellKind::Tanh:
        return call([](auto&&... all) { return at::native::rnn_tanh(all...); });
      default:
        return call([](auto&&... all) { return at::native::rnn_relu(all...); });
    }
  }
};

template <CellKind kind, bool is_packed>
void recurrent_layers(const c10::OperatorHandle& op, Stack* stack) {
  const size_t num_arguments = op.schema().arguments().size();
  const c10::IValue* arguments = stack->data() + stack->size() - num_arguments;
  const c10::IValue* after_input = arguments + (is_packed ? 2 : 1);
  std::vector<Tensor> states;
  if (kind == CellKind::Lstm) {
    states = after_input[0].toTensorVector();
  } else {
    states = {after_input[0].toTensor()};
  }
  const RecurrentCall call{kind,
                           arguments[0].toTensor(),
                           is_packed ? arguments[1].toTensor() : Tensor(),
                           states.empty() ? Tensor() : states[0],
                           states.size() == 2 ? states[1] : Tensor(),
                           after_input[1].toTensorVector(),
                           after_input[2].toBool(),
                           after_input[3].toInt(),
                           after_input[4].toDouble(),
                           after_input[5].toBool(),
                           after_input[6].toBool(),
                           is_packed ? false : after_input[7].toBool()};
  const bool has_states = states.size() == (kind == CellKind::Lstm ? 2u : 1u);
  std::vector<Tensor> results = has_states && call.is_covered() ? call.run() : call.composed(states);
  torch::jit::drop(stack, num_arguments);
  for (Tensor& result : results) stack->emplace_back(std::move(result));
}

constexpr SpecialKernel kRecurrentKernels[] = {
    {"lstm", "input", &recurrent_layers<CellKind::Lstm, false>},
    {"lstm", "data", &recurrent_layers<CellKind::Lstm, true>},
    {"gru", "input", &recurrent_layers<CellKind::Gru, false>},
    {"gru", "data", &recurrent_layers<CellKind::Gru, true>},
    {"rnn_tanh", "input", &recurrent_layers<CellKind::Tanh, false>},
    {"rnn_tanh", "data", &recurrent_layers<CellKind::Tanh, true>},
    {"rnn_relu", "input", &recurrent_layers<CellKind::Relu, false>},
    {"rnn_relu", "data", &recurrent_layers<CellKind::Relu, true>},
};

}  // namespace

c10::ArrayRef<SpecialKernel> recurrent_kernels() { return kRecurrentKernels; }

}  // namespace lockstep::xla
