#pragma once

#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sources.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "lockstep/strategy/input/input_progress.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

/// The position of a distributed iterator, for checkpoints.
using InputPosition = detail::InputPosition;

/// Iterates over a distributed dataset once: each step has a batch for every local replica, on its device.
///
/// Every element is delivered exactly once. In the last step replicas without data get batches of no rows, so that all
/// replicas take part in its collectives; `InputOptions::empty` can change this. All workers end at the same step. One
/// thread at a time may use it.
template <class T>
class DistributedIterator {
 public:
  /// Starts an epoch, or continues a restored one.
  DistributedIterator(std::shared_ptr<const detail::DistributedInput> input,
                      std::shared_ptr<detail::InputProgress> progress)
      : input_(std::move(input)), progress_(std::move(progress)), steps_(progress_->start()) {}
  DistributedIterator(DistributedIterator&&) noexcept = default;
  DistributedIterator& operator=(DistributedIterator&&) noexcept = default;

  /// Returns the next step's batches as distributed values. Throws EndOfData at the end.
  regrouped_t<T> get_next() {
    auto next = get_next_as_optional();
    LOCKSTEP_CHECK_AS(EndOfData, next.has_value(), "[get_next] the dataset has no more elements");
    return *std::move(next);
  }

  /// Returns the next step's batches, or nothing at the end.
  std::optional<regrouped_t<T>> get_next_as_optional() {
    progress_->before_next(steps_);
    if (!steps_->next(elements_)) return std::nullopt;
    std::vector<T> parts;
    for (data::Element& element : elements_) parts.push_back(data::detail::decode<T>(element));
    return regroup(parts, parts.size() > 1 ? Wrap::Always : Wrap::WhereDifferent);
  }

  /// Starts the next epoch, with another random order.
  void initialize() { progress_->start_again(steps_); }

  /// The spec of each replica's batch, as `DistributedDataset::element_spec`.
  PerReplica<data::ElementSpec> element_spec() const { return detail::distributed_spec(*input_); }

  /// Returns the position of the iterator, for a checkpoint.
  InputPosition position() const { return steps_->position(progress_->epochs()); }

  /// Moves to a position of an iterator of the same dataset. The position is valid for another number of replicas, and
  /// for another number of workers unless workers read files of their own. Later epochs continue from its epoch. If
  /// steps have failed, those up to the last failure are read again. Throws ValueError for a position of another
  /// dataset or another seed.
  void restore(const InputPosition& position) { progress_->restore(*steps_, position); }

  /// The position as state, and back. ValueError where workers have different positions.
  State state() const {
    State state;
    state.set("position", detail::position_text(position()));
    return state;
  }
  void load_state(const State& state) { restore(InputPosition::parse(state.text("position"))); }

 private:
  std::shared_ptr<const detail::DistributedInput> input_;
  std::shared_ptr<detail::InputProgress> progress_;
  std::shared_ptr<detail::StepIterator> steps_;
  std::vector<data::Element> elements_;
};

/// A dataset whose batches are divided among the replicas of a strategy; `Strategy::distribute_dataset` makes it.
///
/// ```
/// auto train = strategy.distribute_dataset(data::from_tensor_slices(std::tuple{x, y}).shuffle(10'000).batch(256));
/// for (int epoch = 0; epoch < 10; ++epoch) {
///   for (auto& batch : train) strategy.run(step, batch);
/// }
/// ```
///
/// With a Checkpoint the loop is `for (int64_t epoch = train.epoch(); epoch < 10; ++epoch)`: after a restore the next
/// loop continues where the saved one was, without the batches that it had seen, and the loops after it are the next
/// epochs. A save inside of a loop's body counts the batch in hand as seen; of several loops at once it saves the one
/// that was started last.
///
/// A cheap handle; every loop over it is another epoch, also where the program distributes a dataset anew for every
/// epoch: epochs are those of the dataset's sources. Elements have the dataset's structure, with a PerReplica value
/// for each tensor; with one replica they have the tensors themselves.
template <class T>
class DistributedDataset {
 public:
  explicit DistributedDataset(const std::shared_ptr<const detail::DistributedInput>& input)
      : DistributedDataset(input, detail::epochs_of(*input)) {}
  /// `epochs` counts the epochs that all datasets with this counter have started.
  DistributedDataset(std::shared_ptr<const detail::DistributedInput> input, std::shared_ptr<data::Epochs> epochs)
      : input_(std::move(input)), progress_(std::make_shared<detail::InputProgress>(input_, std::move(epochs))) {}

  /// Starts an epoch, or continues a restored one.
  DistributedIterator<T> iterator() const { return DistributedIterator<T>(input_, progress_); }

  /// The number of the epoch that the next loop reads: the loops so far, those before a restore included.
  int64_t epoch() const { return progress_->epoch(); }

  class Range {
   public:
    using value_type = regrouped_t<T>;
    using difference_type = std::ptrdiff_t;

    explicit Range(DistributedIterator<T> iterator)
        : iterator_(std::make_shared<DistributedIterator<T>>(std::move(iterator))) {
      ++*this;
    }
    value_type& operator*() { return *current_; }
    value_type* operator->() { return &*current_; }
    Range& operator++() {
      current_.reset();
      current_ = iterator_->get_next_as_optional();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Range& range, std::default_sentinel_t) { return !range.current_.has_value(); }

   private:
    std::shared_ptr<DistributedIterator<T>> iterator_;
    std::optional<value_type> current_;
  };

  Range begin() const { return Range(iterator()); }
  std::default_sentinel_t end() const { return {}; }

  /// The spec of each replica's batch: one value for every local replica if there are several.
  PerReplica<data::ElementSpec> element_spec() const { return detail::distributed_spec(*input_); }

  /// The number of steps of an epoch, if it is known.
  data::Cardinality cardinality() const { return detail::num_steps(*input_); }

  /// The epoch and the position in it, and back: the next loop continues there. ValueError for another dataset. Every
  /// worker calls them.
  State state() const { return progress_->state(); }
  LoadResult load_state(const State& state, const LoadOptions& options = {}) const {
    return progress_->load_state(state, options);
  }
  /// Internal: for checkpoints.
  std::shared_ptr<detail::StateObject> state_object() const { return progress_->state_object(); }

 private:
  std::shared_ptr<const detail::DistributedInput> input_;
  std::shared_ptr<detail::InputProgress> progress_;
};

namespace detail {

/// Returns the result of an input function as a dataset. A function becomes an infinite dataset.
template <class Input>
auto as_dataset(Input input) {
  if constexpr (requires { data::detail::node_of(input); }) {
    return input;
  } else {
    static_assert(std::is_invocable_v<Input&>,
                  "the input function must return a dataset, or a function without arguments that returns an element");
    return data::from_generator([input] { return [input]() mutable { return std::optional(input()); }; });
  }
}

}  // namespace detail
}  // namespace lockstep
