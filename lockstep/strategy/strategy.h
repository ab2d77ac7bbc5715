#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/base/trace/trace_options.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/options.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/strategy/documented_names.h"
#include "lockstep/strategy/input/distributed_dataset.h"
#include "lockstep/strategy/input/stack_lists.h"
#include "lockstep/strategy/reduce/reduce_nest.h"
#include "lockstep/strategy/replay/pure.h"
#include "lockstep/strategy/run_options.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

class ClusterResolver;
class Strategy;
class StrategyExtended;
class Variable;

namespace detail {
struct Access;
class ContextGuard;
}  // namespace detail

/// Makes a strategy current on the calling thread for as long as it lives: variables, modules and optimizers that are
/// made meanwhile are distributed. Scopes of one strategy nest; they end in reverse order.
class LOCKSTEP_API Scope {
 public:
  /// As `strategy.scope()`.
  explicit Scope(const Strategy& strategy);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::shared_ptr<detail::StrategyImpl> strategy_;
  /// Null for the default strategy, and if the strategy is current already.
  std::unique_ptr<detail::ContextGuard> context_;
};

/// How a computation is distributed over devices: the common interface of all strategies.
///
/// ```
/// MirroredStrategy strategy({"CPU:0", "CPU:1"});
/// auto scope = strategy.scope();
/// auto model = module<Net>(784, 10);
/// auto adam = optimizer<torch::optim::Adam>(model, 1e-3);
/// auto loss = strategy.run([&](torch::Tensor x, torch::Tensor y) { ... return loss; }, images, labels);
/// std::cout << strategy.reduce("sum", loss);
/// ```
///
/// A cheap handle: copies are the same strategy. Its methods may be called from any thread that is not inside one of
/// its replicas; runs from several threads take turns. TensorFlow's names of all methods work, too
/// (`documented_names.h`).
class LOCKSTEP_API Strategy : public DocumentedNames<Strategy> {
 public:
  explicit Strategy(std::shared_ptr<detail::StrategyImpl> impl);

  /// Enters cross-replica context: `auto scope = strategy.scope();`
  [[nodiscard]] Scope scope() const;

  /// Number of replicas over which gradients are aggregated.
  int num_replicas_in_sync() const;

  /// Lower-level methods, for authors of optimizers and layers.
  StrategyExtended extended() const;

  /// The description of the cluster; null for strategies of one process.
  std::shared_ptr<ClusterResolver> cluster_resolver() const;

  /// Calls `fn` on every replica at once and returns the results of all replicas, regrouped.
  ///
  /// Distributed values among `args`, at any depth, are replaced by the replica's component. A single argument that is
  /// a tuple is unpacked if `fn` takes its elements. A tensor becomes a PerReplica tensor, a tuple of tensors a tuple
  /// of PerReplica tensors, a plain struct a PerReplica struct, and so on. `fn` runs on several threads: what it
  /// captures by reference and writes must be its own. If a replica throws, the others stop waiting for it, and `run`
  /// throws the first exception.
  ///
  /// `fn` is placed on the replica's device: tensors among the arguments are moved there, and factories without a
  /// device (`torch::zeros({2})`) make tensors there. `torch::tensor` and `torch::from_blob` make CPU tensors.
  /// `set_placement(false)` turns this off.
  template <class F, class... Args>
    requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>)
  auto run(F&& fn, const Args&... args) const {
    detail::check_can_run(*impl_);
    return detail::run_replicas(*impl_, fn, args...);
  }

  /// Runs with options for the compiler (run_options.h). They have no effect under strategies that do not compile.
  template <class F, class... Args>
  auto run(const RunOptions& options, F&& fn, const Args&... args) const {
    const detail::RunOptionsScope scope(options);
    return run(std::forward<F>(fn), args...);
  }

  /// Declares a function pure: a strategy that compiles may then repeat it without calling it (pure.h).
  template <class F>
  PureStep<std::decay_t<F>> pure(F&& fn) const {
    return {impl_, std::forward<F>(fn)};
  }

  /// Combines the values of all replicas into one tensor, leaf by leaf.
  ///
  /// Without an axis element by element: [1, 2] and [3, 4] sum to [4, 6]. With one (or several) each replica's tensor
  /// is first reduced along it, so that batches of different sizes may be combined: the mean divides by the number of
  /// all examples. A value that is the same on all replicas is its own mean, and has no sum.
  /// The result is on the current device, or on the CPU.
  template <class T>
  auto reduce(ReduceOp op, const T& value, const ReduceAxis& axis = {},
              const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    detail::check_cross_replica(*impl_, "reduce");
    return detail::reduce_nest(*impl_, op, value, axis);
  }

  /// Concatenates the values of all replicas along `axis`, leaf by leaf; sizes along it may differ.
  template <class T>
  auto gather(const T& value, int64_t axis, const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    detail::check_cross_replica(*impl_, "gather", "use get_replica_context().all_gather()");
    return detail::gather_nest(*impl_, value, axis);
  }

  /// Returns each local replica's part of `value`, in replica order.
  template <class T>
  std::vector<selected_t<T>> local_results(const T& value) const {
    return detail::local_results(*impl_, value);
  }

  /// Returns the copies of a variable.
  std::vector<at::Tensor> local_results(const Variable& variable) const;

  /// Calls `value_fn(ValueContext)` for every local replica, in order, and returns the values as a distributed value.
  template <class F>
  auto distribute_values_from_function(F&& value_fn) const {
    return detail::distribute_values(*impl_, num_replicas_in_sync(), value_fn);
  }

  /// Divides the global batches of a dataset among the replicas of all workers, on their devices and ahead of time.
  ///
  /// Every element is seen exactly once: the last batch is divided too, and a replica that gets nothing of it gets a
  /// batch of no rows (or what `InputOptions::empty` says). How workers share the dataset is its `AutoShardPolicy`
  /// (data/options.h). The dataset must be batched.
  template <class T>
  DistributedDataset<T> distribute_dataset(const data::Dataset<T>& dataset, const InputOptions& options = {}) const {
    return DistributedDataset<T>(detail::distribute_node(*impl_, data::detail::node_of(dataset), options));
  }

  /// Divides the batches of a loader of `torch::data` in the same way; every loop over the result restarts the loader.
  /// The pointer that `make_data_loader` returns is moved, or outlives the result (`data::from_torch`).
  template <class Loader>
    requires data::TorchLoader<Loader>
  auto distribute_dataset(Loader&& loader, const InputOptions& options = {}) const {
    return distribute_torch(data::from_torch(std::forward<Loader>(loader)), options);
  }

  /// Divides the batches of a dataset of `torch::data`, also of a mapped one: `{.batch_size = 64, .shuffle = true}`.
  template <class Dataset>
    requires data::TorchDataset<Dataset>
  auto distribute_dataset(Dataset dataset, const data::TorchBatchOptions& batches = {},
                          const InputOptions& options = {}) const {
    return distribute_torch(data::from_torch(std::move(dataset), batches), options);
  }

  /// Calls `dataset_fn(InputContext)` for every input pipeline of this process, and gives the elements of what it
  /// returns to the replicas unchanged: each batch is for one replica, and the function shards the data.
  template <class F>
  auto distribute_datasets_from_function(F&& dataset_fn, const InputOptions& options = {}) const {
    using Dataset = std::remove_cvref_t<std::invoke_result_t<F&, const InputContext&>>;
    return DistributedDataset<typename Dataset::value_type>(detail::distribute_from_function(
        *impl_, [&](const InputContext& context) { return data::detail::node_of(dataset_fn(context)); }, options));
  }

  /// Returns the rows of tensors, or of nests of them, as a dataset; batch it before it is distributed. A list (a
  /// vector) of tensors, at any depth, is stacked to one tensor, so that its rows are the tensors of the list.
  template <class T>
  auto make_numpy_dataset(T arrays) const {
    detail::check_cross_replica(*impl_, "make_numpy_dataset");
    return data::from_tensor_slices(detail::stack_lists(std::move(arrays)));
  }

  /// Returns an iterator over the distributed dataset.
  template <class T>
  DistributedIterator<T> make_dataset_iterator(const data::Dataset<T>& dataset) const {
    return distribute_dataset(dataset).iterator();
  }

  /// Returns an iterator over what `input_fn(InputContext)` gives: a dataset, or a function without arguments that is
  /// called once for each replica and step.
  template <class F>
  auto make_input_fn_iterator(F&& input_fn,
                              InputReplicationMode replication_mode = InputReplicationMode::PerWorker) const {
    detail::check_cross_replica(*impl_, "make_input_fn_iterator");
    detail::check_per_worker(replication_mode);
    auto dataset_fn = [&](const InputContext& context) { return detail::as_dataset(input_fn(context)); };
    return distribute_datasets_from_function(dataset_fn).iterator();
  }

  /// Writes a trace of some steps, for Perfetto or Chrome; call it on all workers (docs/observing.md). LOCKSTEP_TRACE
  /// does so without a call.
  void trace(const TraceOptions& options) const;

  /// Returns a copy of `config` with the settings that this strategy needs.
  RuntimeConfig update_config_proto(const RuntimeConfig& config) const;

  /// The class of the strategy, for example "MirroredStrategy".
  const char* type_name() const;

  /// Whether both are handles of the same strategy.
  bool operator==(const Strategy& other) const { return impl_ == other.impl_; }

 private:
  friend struct detail::Access;
  friend class Scope;

  template <class T>
  DistributedDataset<T> distribute_torch(const data::Dataset<T>& dataset, const InputOptions& options) const {
    return {detail::distribute_node(*impl_, data::detail::node_of(dataset), options), detail::drawn_epochs(*impl_)};
  }

  std::shared_ptr<detail::StrategyImpl> impl_;
};

}  // namespace lockstep
