#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include "lockstep/api.h"
#include "lockstep/value/distributed.h"

namespace lockstep {

/// When the copies of a variable are made equal.
enum class VariableSynchronization {
  /// The strategy's choice: OnWrite.
  Auto,
  /// Never. Not possible for mirrored variables.
  None,
  /// At every write: all copies are always equal.
  OnWrite,
  /// At reads outside of replicas: each replica writes its own copy, and a read combines them.
  OnRead,
};

/// How the values that replicas write, or their copies, are combined into one value.
enum class VariableAggregation {
  /// Not at all: each replica changes its own copy.
  None,
  Sum,
  Mean,
  /// The first replica's value is the value.
  OnlyFirstReplica,
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, VariableSynchronization synchronization);
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, VariableAggregation aggregation);

struct LOCKSTEP_API VariableOptions {
  std::string name = "Variable";
  /// Whether gradients are computed for it; floating-point variables only. The default is true, but false for OnRead
  /// variables, which cannot be trained.
  std::optional<bool> trainable = std::nullopt;
  VariableSynchronization synchronization = VariableSynchronization::Auto;
  VariableAggregation aggregation = VariableAggregation::None;
  std::optional<at::ScalarType> dtype = std::nullopt;
};

/// A value for a variable: a number, a tensor, or one tensor for each replica.
///
/// A number is a literal: it is the same on every replica. Replicas that contribute values of their own pass tensors.
class LOCKSTEP_API VariableOperand {
 public:
  VariableOperand(double number) : literal_(true), plain_(at::scalar_tensor(number, at::kDouble)) {}  // NOLINT
  VariableOperand(float number) : VariableOperand(static_cast<double>(number)) {}                     // NOLINT
  VariableOperand(int number) : VariableOperand(static_cast<int64_t>(number)) {}                      // NOLINT
  VariableOperand(int64_t number) : literal_(true), plain_(at::scalar_tensor(number, at::kLong)) {}   // NOLINT
  VariableOperand(bool value) : literal_(true), plain_(at::scalar_tensor(value, at::kBool)) {}        // NOLINT
  VariableOperand(at::Tensor tensor) : plain_(std::move(tensor)) {}                                   // NOLINT
  VariableOperand(const PerReplica<at::Tensor>& value);                                               // NOLINT
  VariableOperand(const Mirrored<at::Tensor>& value);                                                 // NOLINT

  bool is_literal() const { return literal_; }
  bool is_per_replica() const { return kind_ == Kind::PerReplica; }
  /// The tensor for copy `component`.
  const at::Tensor& at(int component) const;

 private:
  enum class Kind { Plain, PerReplica, Mirrored };
  Kind kind_ = Kind::Plain;
  bool literal_ = false;
  at::Tensor plain_;
  std::vector<at::Tensor> components_;
};

}  // namespace lockstep
