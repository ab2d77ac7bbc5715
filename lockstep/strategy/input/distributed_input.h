#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/iterator.h"
#include "lockstep/data/node.h"
#include "lockstep/strategy/input/input_options.h"
#include "lockstep/value/distributed.h"

/// Internal: distributed input without its element type. `DistributedDataset<T>` adds the type.
namespace lockstep::detail {

class EmptyBatches;
struct DistributedInput;
struct Step;
class StepFeeder;
class StrategyImpl;

/// Returns the spec of each local replica's batch; a bare value for the only replica of a strategy.
LOCKSTEP_API PerReplica<data::ElementSpec> distributed_spec(const DistributedInput& input);
/// Returns the names of the devices that hold the batches of the local replicas: their own devices, or the host.
LOCKSTEP_API std::vector<std::string> batch_devices(const DistributedInput& input);
/// Returns the number of steps of an epoch, as far as it is known.
LOCKSTEP_API data::Cardinality num_steps(const DistributedInput& input);

/// The position of a distributed iterator: the epoch and the number of steps. It is valid for another number of workers
/// if the order of elements does not depend on that number. Where workers read different elements and a step has failed
/// on one of them, it is valid for the worker that took it. `str` and `parse` convert to and from text.
struct LOCKSTEP_API InputPosition {
  uint64_t epoch = 0;
  /// Steps that were read; calls that threw do not count.
  int64_t steps = 0;
  int64_t num_workers = 1;
  std::string pipeline;
  data::PositionDetails details = {};

  std::string str() const;
  static InputPosition parse(const std::string& text);

  friend bool operator==(const InputPosition&, const InputPosition&) = default;
};

/// Throws ValueError unless the position is of the input's dataset and holds for its workers.
LOCKSTEP_API void check_position(const InputPosition& position, const DistributedInput& input);

/// Returns the counter of epochs of the input's datasets.
LOCKSTEP_API std::shared_ptr<data::Epochs> epochs_of(const DistributedInput& input);
/// Starts an epoch and returns its number, the same on all workers: a collective.
LOCKSTEP_API uint64_t start_epoch(const DistributedInput& input, data::Epochs& epochs);

/// Iterates over the steps of one epoch, with every element on its device (`batch_devices`). Prefetches by the options.
class LOCKSTEP_API StepIterator {
 public:
  StepIterator(std::shared_ptr<const DistributedInput> input, uint64_t epoch);
  ~StepIterator();
  StepIterator(StepIterator&&) noexcept;
  StepIterator& operator=(StepIterator&&) noexcept;

  /// Puts the elements of all local replicas into `elements`, or returns false at the end, on all workers together.
  bool next(std::vector<data::Element>& elements);

  /// Whether `next` has returned false.
  bool has_ended() const { return ended_; }

  /// `epochs` is the counter of the iterator's dataset.
  InputPosition position(const data::Epochs& epochs) const;
  /// Later epochs of `epochs` follow that of the position.
  void restore(const InputPosition& position, data::Epochs& epochs);

 private:
  /// Restarts the epoch at its beginning.
  void start(uint64_t epoch);
  /// Reads the steps up to the last call that failed again, then skips the others before the position.
  void go_to(const InputPosition& position);
  /// Returns the next step. Counts exceptions.
  Step read_step();

  /// Returns the bits that any worker has set: a collective.
  uint8_t of_any_worker(uint8_t mine) const;
  /// Whether it is true on any worker: a collective.
  bool on_any_worker(bool mine) const { return of_any_worker(mine ? 1 : 0) != 0; }
  /// Does what `InputOptions::empty` says about replicas without rows. Returns false if the step is dropped.
  bool complete(Step& step);
  /// Throws, here and at every later call: the cache holds other elements than those of the restored position.
  void refuse_cache();
  /// Throws if all steps of the epoch were dropped.
  void check_delivered() const;

  std::shared_ptr<const DistributedInput> input_;
  data::Iteration iteration_;
  /// Calls that have thrown, and all calls up to the last one that did.
  int64_t failed_ = 0;
  int64_t calls_at_failure_ = 0;
  /// Whether calls have thrown on any worker, as far as it is known.
  bool any_has_failed_ = false;
  /// Whether a worker's cache holds other elements than those of the restored position.
  bool has_other_cache_ = false;
  /// The mapped files of the step that `next` has returned last, whose bytes the program may have read since.
  std::vector<c10::intrusive_ptr<data::Buffer>> mapped_;
  /// Steps that were read or skipped, dropped ones included.
  int64_t steps_ = 0;
  /// Whether `next` has returned a step.
  bool delivered_ = false;
  std::unique_ptr<EmptyBatches> empty_batches_;
  std::unique_ptr<StepFeeder> feeder_;
  bool ended_ = false;
};

/// Makes the input of a strategy's local replicas from a dataset of global batches.
LOCKSTEP_API std::shared_ptr<const DistributedInput> distribute_node(const StrategyImpl& strategy,
                                                                     const data::NodePtr& dataset,
                                                                     const InputOptions& options);

/// Returns a counter of epochs that begins with a number drawn from LibTorch's default generator, the same on all
/// workers; a collective. Programs distribute a loader anew for every epoch, and each must have another random order;
/// and as with LibTorch alone the orders are the same again after `torch::manual_seed`.
LOCKSTEP_API std::shared_ptr<data::Epochs> drawn_epochs(const StrategyImpl& strategy);

/// Throws ValueError unless `mode` is PerWorker.
LOCKSTEP_API void check_per_worker(InputReplicationMode mode);

/// Makes the input of a strategy's local replicas from what `make` returns for each local pipeline.
LOCKSTEP_API std::shared_ptr<const DistributedInput> distribute_from_function(
    const StrategyImpl& strategy, const std::function<data::NodePtr(const InputContext&)>& make,
    const InputOptions& options);

}  // namespace lockstep::detail
