#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include "lockstep/api.h"
#include "lockstep/value/distributed.h"
#include "lockstep/value/indexed_slices.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

class Strategy;

/// When the copies of a variable are made equal.
enum class VariableSynchronization {
  /// The strategy's choice: OnWrite.
  Auto,
  /// Never. Not possible for mirrored variables.
  None,
  /// At every write: all copies are always equal.
  OnWrite,
  /// When it is read outside of replicas: each replica writes its own copy, and reading combines them.
  OnRead,
};

/// How what replicas write, or their copies, become one value.
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
  /// Whether gradients are computed for it; floating-point variables only. By default yes, unless it is OnRead, for
  /// which it is an error.
  std::optional<bool> trainable = std::nullopt;
  VariableSynchronization synchronization = VariableSynchronization::Auto;
  VariableAggregation aggregation = VariableAggregation::None;
  std::optional<at::ScalarType> dtype = std::nullopt;
};

/// What a variable can be assigned: a number, a tensor, or one tensor for each replica.
///
/// A number is a literal, the same on every replica; replicas that contribute their own parts pass tensors.
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
  /// What copy `component` takes of it.
  const at::Tensor& at(int component) const;

 private:
  enum class Kind { Plain, PerReplica, Mirrored };
  Kind kind_ = Kind::Plain;
  bool literal_ = false;
  at::Tensor plain_;
  std::vector<at::Tensor> components_;
};

/// A tensor that lives on: under a strategy's scope one copy on each replica's device, kept equal or combined by its
/// rules; elsewhere a single tensor.
///
/// ```
/// auto scope = strategy.scope();
/// Variable total(0.0, {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum});
/// strategy.run([&](torch::Tensor x) { total.assign_add(x.sum()); }, batch);   // each replica its own
/// std::cout << total.read_value();                                            // all together
/// ```
///
/// A cheap handle: copies are the same variable. Inside a replica it is the replica's own copy, also for autograd; it
/// may be read and written outside of any scope too.
class LOCKSTEP_API Variable {
 public:
  /// Makes a variable of the current strategy. All copies start with the value of the first.
  explicit Variable(const at::Tensor& initial, const VariableOptions& options = {});
  explicit Variable(double initial, const VariableOptions& options = {});

  /// Returns the copy that is meant here: the replica's own, or outside of replicas the first, or for OnRead variables
  /// the combined value. It is no snapshot: later writes to the copy show.
  at::Tensor value() const;
  /// Returns a snapshot of `value()`.
  at::Tensor read_value() const;
  operator at::Tensor() const { return value(); }  // NOLINT: a variable is its value

  /// Writes. Outside of replicas all copies take the value. Inside, OnWrite variables combine what the replicas give,
  /// by their aggregation, before all copies take it; OnRead variables write the replica's own copy.
  /// Returns this variable.
  const Variable& assign(const VariableOperand& value) const;
  const Variable& assign_add(const VariableOperand& value) const;
  const Variable& assign_sub(const VariableOperand& value) const;

  /// Writes rows. Not for OnRead variables; min, max and update only where nothing has to be combined (aggregation
  /// None or OnlyFirstReplica).
  const Variable& scatter_add(const IndexedSlices& rows) const;
  const Variable& scatter_sub(const IndexedSlices& rows) const;
  const Variable& scatter_mul(const IndexedSlices& rows) const;
  const Variable& scatter_div(const IndexedSlices& rows) const;
  const Variable& scatter_min(const IndexedSlices& rows) const;
  const Variable& scatter_max(const IndexedSlices& rows) const;
  const Variable& scatter_update(const IndexedSlices& rows) const;

  const std::string& name() const;
  at::ScalarType dtype() const;
  std::vector<int64_t> shape() const;
  bool trainable() const;
  VariableSynchronization synchronization() const;
  VariableAggregation aggregation() const;
  Strategy strategy() const;

  /// The device of the copy that is meant here, and those of all copies.
  std::string device() const;
  std::vector<std::string> devices() const;

  /// All copies, in replica order; writing to them is nobody's business but the strategy's.
  const std::vector<at::Tensor>& components() const;
  /// The replica's own copy. Only inside a replica or an update.
  const at::Tensor& handle() const;

  bool is_distributed() const;
  bool is_same(const Variable& other) const { return impl_ == other.impl_; }

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// Arithmetic and comparison act on `value()`.
LOCKSTEP_API at::Tensor operator+(const Variable& a, const at::Scalar& b);
LOCKSTEP_API at::Tensor operator-(const Variable& a, const at::Scalar& b);
LOCKSTEP_API at::Tensor operator*(const Variable& a, const at::Scalar& b);
LOCKSTEP_API at::Tensor operator/(const Variable& a, const at::Scalar& b);
LOCKSTEP_API at::Tensor operator+(const Variable& a, const at::Tensor& b);
LOCKSTEP_API at::Tensor operator-(const Variable& a, const at::Tensor& b);
LOCKSTEP_API at::Tensor operator*(const Variable& a, const at::Tensor& b);
LOCKSTEP_API at::Tensor operator/(const Variable& a, const at::Tensor& b);

/// Prints as the API pages do: `MirroredVariable:{` and one line for each copy.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const Variable& variable);

template <>
struct nest::Visit<Variable> {
  static constexpr bool kIsLeaf = true;
};

/// A variable passes through `run` whole, in and out.
template <>
struct Regroup<Variable> {
  using Grouped = Variable;
  LOCKSTEP_API static Variable regroup(std::span<const Variable* const> parts, Wrap);
  static const Variable& select(int, const Variable& variable) { return variable; }
};

/// While it lives, reading an OnRead variable inside a replica combines it over all replicas, which must all read it.
class LOCKSTEP_API SyncOnReadScope {
 public:
  SyncOnReadScope();
  ~SyncOnReadScope();
  SyncOnReadScope(const SyncOnReadScope&) = delete;
  SyncOnReadScope& operator=(const SyncOnReadScope&) = delete;
};

}  // namespace lockstep
