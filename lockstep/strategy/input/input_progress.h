#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/epochs.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/input/distributed_input.h"

namespace lockstep::detail {

class StateObject;

/// Internal: how far the loops over a distributed dataset are. One thread at a time may use it.
class LOCKSTEP_API InputProgress : public std::enable_shared_from_this<InputProgress> {
 public:
  /// `epochs` counts the epochs of the dataset's sources.
  InputProgress(std::shared_ptr<const DistributedInput> input, std::shared_ptr<data::Epochs> epochs);

  /// Starts the next epoch, or continues a restored one.
  std::shared_ptr<StepIterator> start();
  /// The same for an iterator that is there.
  void start_again(const std::shared_ptr<StepIterator>& steps);
  /// Before the next step of an iterator: moves it to the restored position, unless another one has continued there.
  void before_next(const std::shared_ptr<StepIterator>& steps);
  /// The user moves an iterator.
  void restore(StepIterator& steps, const InputPosition& position);

  /// The number of the epoch that the next loop reads, from 0 on.
  int64_t epoch() const { return next_; }
  data::Epochs& epochs() const { return *epochs_; }

  /// The epoch, and the position in it.
  State state();
  LoadResult load_state(const State& state, const LoadOptions& options);
  /// For checkpoints.
  std::shared_ptr<StateObject> state_object();

 private:
  friend class InputState;

  void take_pending(StepIterator& steps);

  std::shared_ptr<const DistributedInput> input_;
  std::shared_ptr<data::Epochs> epochs_;
  int64_t next_ = 0;
  /// The iterator that was started last.
  std::weak_ptr<StepIterator> current_;
  /// What was restored and no iterator has taken yet.
  std::optional<InputPosition> pending_;
  /// A state between two epochs was restored: an iterator that exists starts the next epoch.
  bool restarts_ = false;
};

/// The position as text. ValueError where it holds for one of several workers only.
LOCKSTEP_API std::string position_text(const InputPosition& position);

}  // namespace lockstep::detail
