#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "lockstep/api.h"
#include "lockstep/data/iterator.h"
#include "lockstep/data/node.h"
#include "lockstep/strategy/input_options.h"
#include "lockstep/value/distributed.h"

/// Inside: distributed input with its element type erased. `DistributedDataset<T>` is the typed face of it.
namespace lockstep::detail {

class StrategyImpl;

/// One input pipeline and the devices that it feeds, in turns.
struct InputPipeline {
  data::NodePtr node;
  std::vector<c10::Device> devices;
};

/// Asks all workers whether any of them has data, and waits for their answers. With one worker, the identity.
using AnyWorker = std::function<bool(bool mine)>;

/// What the replicas of this process are fed from; never changes.
struct LOCKSTEP_API DistributedInput {
  std::vector<InputPipeline> pipelines = {};
  InputOptions options = {};
  std::shared_ptr<const StrategyImpl> strategy = nullptr;
  AnyWorker any_worker = {};
  /// Shown in positions: the user's dataset, and how many workers share it.
  std::string description = {};
  int64_t num_workers = 1;
  /// Whether a position holds for another number of workers, too.
  bool order_is_global = true;

  int num_replicas() const;
};

/// What is known of each local replica's batch; a bare value for the only replica of a strategy.
LOCKSTEP_API PerReplica<data::ElementSpec> distributed_spec(const DistributedInput& input);
/// How many steps there are.
LOCKSTEP_API data::Cardinality num_steps(const DistributedInput& input);

/// The elements of one step: one for each local replica that got one, in replica order.
struct LOCKSTEP_API Step {
  std::vector<std::optional<data::Element>> elements;

  bool has_data() const;
};

/// Takes elements from one pipeline in turns for its replicas; the last step may be partial.
class LOCKSTEP_API StepReader {
 public:
  explicit StepReader(const InputPipeline& pipeline, const data::Iteration& iteration);

  /// Reads what each replica gets next, without giving it out. After an exception the next call goes on behind the
  /// element that could not be made; what was read for other replicas is kept.
  void prepare();
  /// Prepares a step and appends it.
  void read(Step& step);
  /// Passes over whole steps and returns how many there were, a partial one included.
  int64_t skip(int64_t count);

 private:
  std::unique_ptr<data::NodeIterator> iterator_;
  size_t num_replicas_;
  std::vector<std::optional<data::Element>> prepared_;
};

/// Gives replicas without data a batch of no rows on their device: of the same types and sizes as what others got in
/// this step or before, or else as the spec says. Throws ValueError where elements are no batches.
class LOCKSTEP_API EmptyBatches {
 public:
  /// `devices` are those of the replicas.
  EmptyBatches(data::NodePtr node, std::vector<c10::Device> devices)
      : node_(std::move(node)), devices_(std::move(devices)) {}
  void fill(Step& step);

 private:
  /// What a batch of no rows looks like; throws where that cannot be known.
  const data::Element& pattern(const Step& step);

  data::NodePtr node_;
  std::vector<c10::Device> devices_;
  std::optional<data::Element> pattern_;
};

/// Where a distributed iterator stands: after how many steps of which epoch. Holds for another number of workers where
/// the order of elements does not depend on it. Goes to and comes from text with `str` and `parse`.
struct LOCKSTEP_API InputPosition {
  uint64_t epoch = 0;
  int64_t steps = 0;
  int64_t num_workers = 1;
  std::string pipeline;

  std::string str() const;
  static InputPosition parse(const std::string& text);

  friend bool operator==(const InputPosition&, const InputPosition&) = default;
};

/// Makes the steps of one epoch, ahead of time where the options say so, with every element on its replica's device.
class LOCKSTEP_API StepIterator {
 public:
  StepIterator(std::shared_ptr<const DistributedInput> input, uint64_t epoch);
  ~StepIterator();
  StepIterator(StepIterator&&) noexcept;
  StepIterator& operator=(StepIterator&&) noexcept;

  /// Puts the elements of all local replicas into `elements`, or returns false at the end, which all workers agree on.
  bool next(std::vector<data::Element>& elements);

  InputPosition position() const;
  void restore(const InputPosition& position);

 private:
  class Feeder;

  std::shared_ptr<const DistributedInput> input_;
  uint64_t epoch_;
  int64_t steps_ = 0;
  EmptyBatches empty_batches_;
  std::unique_ptr<Feeder> feeder_;
  bool ended_ = false;
};

/// Makes the input of a strategy's local replicas from a dataset of global batches.
LOCKSTEP_API std::shared_ptr<const DistributedInput> distribute_node(const StrategyImpl& strategy,
                                                                     const data::NodePtr& dataset,
                                                                     const InputOptions& options);

/// Makes it from what `make` returns for each local pipeline.
LOCKSTEP_API std::shared_ptr<const DistributedInput> distribute_from_function(
    const StrategyImpl& strategy, const std::function<data::NodePtr(const InputContext&)>& make,
    const InputOptions& options);

}  // namespace lockstep::detail
