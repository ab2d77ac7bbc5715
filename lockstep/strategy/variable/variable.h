#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/variable/variable_options.h"
#include "lockstep/value/indexed_slices.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

class Strategy;

namespace detail {
struct Access;
class StateObject;
struct VariableImpl;
}  // namespace detail

/// A tensor that outlives a run. Under a strategy's scope it has one copy on each replica's device; its options say
/// when the copies are made equal. Elsewhere it is a single tensor.
///
/// ```
/// auto scope = strategy.scope();
/// Variable total(0.0, {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum});
/// strategy.run([&](torch::Tensor x) { total.assign_add(x.sum()); }, batch);   // each replica its own
/// std::cout << total.read_value();                                            // all together
/// ```
///
/// A cheap handle: copies of it are the same variable. Inside a replica it is the replica's own copy, also for
/// autograd. It may be read and written outside of any scope, too.
class LOCKSTEP_API Variable {
 public:
  /// Makes a variable of the current strategy. All copies start with the value of the first.
  explicit Variable(const at::Tensor& initial, const VariableOptions& options = {});
  explicit Variable(double initial, const VariableOptions& options = {});

  /// Returns the current copy: inside a replica the replica's own, outside of replicas the first, or for OnRead
  /// variables the combined value. It is not a snapshot: later writes to the copy are visible in it.
  at::Tensor value() const;
  /// Returns a snapshot of `value()`.
  at::Tensor read_value() const;
  operator at::Tensor() const { return value(); }  // NOLINT: a variable is its value

  /// Each of these writes the variable and returns it. Outside of replicas all copies take the value. Inside a replica,
  /// OnWrite variables combine the values of all replicas by their aggregation, and all copies take the result; OnRead
  /// variables write the replica's own copy.
  const Variable& assign(const VariableOperand& value) const;
  const Variable& assign_add(const VariableOperand& value) const;
  const Variable& assign_sub(const VariableOperand& value) const;

  /// Each of these writes rows and returns the variable. Not for OnRead variables; min, max and update only with the
  /// aggregations None and OnlyFirstReplica, which combine nothing.
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

  /// The device of the current copy, and those of all copies.
  std::string device() const;
  std::vector<std::string> devices() const;

  /// All copies, in replica order. Only the strategy writes to them.
  const std::vector<at::Tensor>& components() const;
  /// The replica's own copy. Only inside a replica or an update.
  const at::Tensor& handle() const;

  /// Its value as state, and back: all copies take it. Of an OnRead variable the combined value and the copies: with
  /// the same number of replicas each takes its own again; otherwise the first one takes a sum, and each one a mean.
  /// Every worker calls them.
  State state() const;
  LoadResult load_state(const State& state, const LoadOptions& options = {}) const;
  /// Internal: for checkpoints.
  std::shared_ptr<detail::StateObject> state_object() const;

  bool is_distributed() const;
  bool is_same(const Variable& other) const { return impl_ == other.impl_; }

 private:
  friend struct detail::Access;
  friend LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const Variable& variable);

  std::shared_ptr<detail::VariableImpl> impl_;
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

/// `run` passes a variable to replicas, and returns it, as a whole.
template <>
struct Regroup<Variable> {
  using Grouped = Variable;
  LOCKSTEP_API static Variable regroup(std::span<const Variable* const> parts, Wrap);
  static const Variable& select(int, const Variable& variable) { return variable; }
};

/// While it lives, a read of an OnRead variable inside a replica combines the copies of all replicas. All replicas must
/// read it.
class LOCKSTEP_API SyncOnReadScope {
 public:
  SyncOnReadScope();
  ~SyncOnReadScope();
  SyncOnReadScope(const SyncOnReadScope&) = delete;
  SyncOnReadScope& operator=(const SyncOnReadScope&) = delete;
};

}  // namespace lockstep
