#pragma once

#include "lockstep/xla/graph/ops/build.h"

/// Internal: LSTM, GRU and simple recurrent layers. One layer in one direction is one loop of XLA over time.
namespace lockstep::xla {

enum class CellKind : int64_t { Lstm, Gru, Tanh, Relu };

/// The number of gates: the first dimension of weights is that many times the hidden size.
int64_t num_gates(CellKind kind);

/// One layer in one direction. `gates` [time, batch, gates x hidden] is the input's part of the gates: the product with
/// the input weights, and the biases. Of a GRU it has the input's bias only; `bias` is that of the hidden state.
struct Recurrence {
  CellKind kind = CellKind::Lstm;
  /// From the last element to the first.
  bool reverse = false;
  Value gates;
  /// [batch, hidden].
  Value hidden;
  /// LSTM: [batch, hidden]. Null for others.
  Value cell;
  /// [gates x hidden, hidden].
  Value weight;
  /// GRU: [gates x hidden], or null. Null for others.
  Value bias;
  /// Sequences of different lengths: a bool [time, batch, 1], false where a sequence has no element; its state stays as
  /// it is there. Null if all have the same length.
  Value mask;
};

struct RecurrenceValues {
  /// The hidden state after each step: [time, batch, hidden].
  Value hidden;
  /// LSTM: the cell state after the last step.
  Value last_cell;
  /// For the gradient, if it was asked for: gates after their activations, and the LSTM's cell state after each step.
  Value activations;
  Value cells;
};

RecurrenceValues recurrence(const Recurrence& layer, bool for_gradient);

/// Null where the layer has no such value.
struct RecurrenceGradients {
  Value gates, hidden, cell, weight, bias;
};

/// `values` are those of the layer; `of_hidden` and `of_last_cell` the gradients of its results.
RecurrenceGradients recurrence_gradients(const Recurrence& layer, const RecurrenceValues& values,
                                         const Value& of_hidden, const Value& of_last_cell);

}  // namespace lockstep::xla
