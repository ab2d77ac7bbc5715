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
#include "lockstep/strategy/input/input_options.h"

/// Internal: the input pipelines of a process, and how the elements of a step are read from them.
namespace lockstep::detail {

class HostCopier;
class StrategyImpl;

/// One input pipeline and the devices of its batches, which replicas take in turn.
struct InputPipeline {
  data::NodePtr node;
  std::vector<c10::Device> devices;
  /// The name of each device.
  std::vector<std::string> names = {};
  /// Whether the dataset is on the only device of its replica (InputOptions::place_dataset_on_device).
  bool is_placed = false;
  /// Its number among the pipelines that a dataset function made.
  uint64_t number = 0;
};

/// Returns the bits that any worker has set; a collective of all workers. Empty with one worker.
using AnyWorker = std::function<uint8_t(uint8_t mine)>;

/// The input of the replicas of this process. Immutable.
struct LOCKSTEP_API DistributedInput {
  std::vector<InputPipeline> pipelines = {};
  InputOptions options = {};
  std::shared_ptr<const StrategyImpl> strategy = nullptr;
  AnyWorker any_worker = {};
  /// The user's dataset and how it is divided, for positions.
  std::string description = {};
  int64_t num_workers = 1;
  /// The index of this worker.
  int64_t worker = 0;
  /// Whether a position is valid for another number of workers, too.
  bool order_is_global = true;
  /// Whether other workers read other elements in the same step, so that they have other errors.
  bool reads_own_elements = false;

  int num_replicas() const;
  /// The devices of the batches of all replicas.
  std::vector<c10::Device> devices() const;
};

/// The elements of one step, in replica order; nothing for replicas without data.
struct LOCKSTEP_API Step {
  std::vector<std::optional<data::Element>> elements;
  /// Whether this worker had no data, so that all elements repeat earlier ones (RepeatedBatches).
  bool is_past_end = false;

  /// Whether this worker has data of its own.
  bool has_data() const;
  /// Whether every replica has a batch of at least one row. Elements that are not batches count as one row.
  bool is_complete() const;
};

/// Reads the elements of one pipeline's replicas, step by step. The last step may be partial.
class LOCKSTEP_API StepReader {
 public:
  explicit StepReader(const InputPipeline& pipeline, const data::Iteration& iteration);

  /// Reads the next element of each replica, for the next `read`. After an exception the next call continues after the
  /// element that failed; elements that were read for other replicas are not lost.
  void prepare();
  /// Appends the next element of each replica to `step`.
  void read(Step& step);
  /// Skips up to `count` steps and returns how many there were, including a partial one.
  int64_t skip(int64_t count);

 private:
  bool next(data::Element& element);

  std::unique_ptr<data::NodeIterator> iterator_;
  size_t num_replicas_;
  data::BatchDivision division_;
  bool pin_memory_;
  std::shared_ptr<HostCopier> copier_;
  /// The device that is current while elements are made; empty for the caller's.
  std::string device_;
  std::vector<std::optional<data::Element>> prepared_;
};

/// Gives replicas without data a batch of no rows on their device. Its types and sizes are those of another batch of
/// this step or an earlier one, or of the spec. Throws ValueError if elements are not batches.
class LOCKSTEP_API EmptyBatches {
 public:
  /// `devices` are those of the replicas.
  EmptyBatches(data::NodePtr node, std::vector<c10::Device> devices)
      : node_(std::move(node)), devices_(std::move(devices)) {}
  void fill(Step& step);

 private:
  /// Returns a batch of no rows; throws ValueError if its types and sizes are unknown.
  const data::Element& pattern(const Step& step);

  data::NodePtr node_;
  std::vector<c10::Device> devices_;
  std::optional<data::Element> pattern_;
};

/// Gives replicas without rows a copy of the first batch of the step that has rows. If none has: of the first one of an
/// earlier step, which is kept only if `has_other_workers`. Leaves the step as it is if there is nothing to repeat.
class LOCKSTEP_API RepeatedBatches {
 public:
  explicit RepeatedBatches(bool has_other_workers) : keeps_last_(has_other_workers) {}
  void fill(Step& step);

 private:
  bool keeps_last_;
  std::optional<data::Element> last_;
};

}  // namespace lockstep::detail
