#include "lockstep/strategy/input/input_progress.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

InputProgress::InputProgress(std::shared_ptr<const DistributedInput> input, std::shared_ptr<data::Epochs> epochs)
    : input_(std::move(input)), epochs_(std::move(epochs)) {}

std::shared_ptr<StepIterator> InputProgress::start() {
  restarts_ = false;
  const uint64_t epoch = pending_ ? pending_->epoch : start_epoch(*input_, *epochs_);
  auto steps = std::make_shared<StepIterator>(input_, epoch);
  current_ = steps;
  if (pending_) {
    take_pending(*steps);
  } else {
    ++next_;
  }
  return steps;
}

void InputProgress::start_again(const std::shared_ptr<StepIterator>& steps) {
  const std::shared_ptr<StepIterator> started = start();
  *steps = std::move(*started);
  current_ = steps;
}

void InputProgress::before_next(const std::shared_ptr<StepIterator>& steps) {
  if (restarts_) return start_again(steps);
  if (!pending_) return;
  current_ = steps;
  take_pending(*steps);
}

void InputProgress::restore(StepIterator& steps, const InputPosition& position) {
  pending_.reset();
  restarts_ = false;
  steps.restore(position, *epochs_);
}

void InputProgress::take_pending(StepIterator& steps) {
  const InputPosition position = *std::exchange(pending_, std::nullopt);
  ++next_;
  steps.restore(position, *epochs_);
}

std::string position_text(const InputPosition& position) {
  LOCKSTEP_CHECK_VALUE(!position.details.worker,
                       "[state] steps of the input have failed, and the workers read different elements, so that the "
                       "position of one worker does not hold for the others; use AutoShardPolicy::Data, or correct the "
                       "elements that fail");
  return position.str();
}

/// Of a distributed dataset.
class InputState final : public StateObject {
 public:
  explicit InputState(std::shared_ptr<InputProgress> progress) : progress_(std::move(progress)) {}

  State state() const override {
    const InputProgress& progress = *progress_;
    const std::shared_ptr<StepIterator> current = progress.current_.lock();
    const bool is_inside = current && !current->has_ended() && !progress.restarts_;
    State state;
    state.set("next_epoch", State::Value(static_cast<int64_t>(progress.epochs_->next())));
    if (progress.pending_) {
      state.set("epoch", State::Value(progress.next_));
      state.set("position", position_text(*progress.pending_));
    } else if (is_inside) {
      state.set("epoch", State::Value(progress.next_ - 1));
      state.set("position", position_text(current->position(*progress.epochs_)));
    } else {
      state.set("epoch", State::Value(progress.next_));
    }
    return state;
  }

  void plan_load(LoadPlan::Part part) override {
    const int64_t epoch = part.integer_or("epoch", 0);
    const int64_t next_epoch = part.integer_or("next_epoch", 0);
    std::optional<InputPosition> position;
    if (part.has("position")) position = parse(part, part.text_or("position", ""));
    part.after([progress = progress_, epoch, next_epoch, position] {
      progress->next_ = epoch;
      progress->pending_ = position;
      progress->restarts_ = !position;
      progress->epochs_->set_next(static_cast<uint64_t>(next_epoch));
    });
  }

  std::shared_ptr<StrategyImpl> strategy() const override {
    return std::const_pointer_cast<StrategyImpl>(progress_->input_->strategy);
  }

 private:
  std::optional<InputPosition> parse(LoadPlan::Part& part, const std::string& text) const {
    try {
      InputPosition position = InputPosition::parse(text);
      check_position(position, *progress_->input_);
      return position;
    } catch (const c10::Error& error) {
      part.unfitting("position", error.what_without_backtrace());
      return std::nullopt;
    }
  }

  std::shared_ptr<InputProgress> progress_;
};

State InputProgress::state() { return state_object()->state(); }

LoadResult InputProgress::load_state(const State& state, const LoadOptions& options) {
  LoadPlan plan(state);
  state_object()->plan_load(plan.all());
  return plan.execute(options);
}

std::shared_ptr<StateObject> InputProgress::state_object() { return std::make_shared<InputState>(shared_from_this()); }

}  // namespace lockstep::detail
