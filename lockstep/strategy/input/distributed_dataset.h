#pragma once

#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sources.h"
#include "lockstep/strategy/input/distributed_input.h"
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
  /// `epochs` counts the epochs that all iterators of a dataset have started.
  DistributedIterator(std::shared_ptr<const detail::DistributedInput> input, std::shared_ptr<data::Epochs> epochs)
      : input_(std::move(input)), epochs_(std::move(epochs)), steps_(input_, next_epoch()) {}

  /// Returns the next step's batches as distributed values. Throws EndOfData at the end.
  regrouped_t<T> get_next() {
    auto next = get_next_as_optional();
    LOCKSTEP_CHECK_AS(EndOfData, next.has_value(), "[get_next] the dataset has no more elements");
    return *std::move(next);
  }

  /// Returns the next step's batches, or nothing at the end.
  std::optional<regrouped_t<T>> get_next_as_optional() {
    if (!steps_.next(elements_)) return std::nullopt;
    std::vector<T> parts;
    for (data::Element& element : elements_) parts.push_back(data::detail::decode<T>(element));
    return regroup(parts, parts.size() > 1 ? Wrap::Always : Wrap::WhereDifferent);
  }

  /// Starts the next epoch, with another random order.
  void initialize() { steps_ = detail::StepIterator(input_, next_epoch()); }

  /// The spec of each replica's batch, as `DistributedDataset::element_spec`.
  PerReplica<data::ElementSpec> element_spec() const { return detail::distributed_spec(*input_); }

  /// Returns the position of the iterator, for a checkpoint.
  InputPosition position() const { return steps_.position(*epochs_); }

  /// Moves to a position of an iterator of the same dataset. The position is valid for another number of replicas, and
  /// for another number of workers unless workers read files of their own. Later epochs continue from its epoch. If
  /// steps have failed, those up to the last failure are read again. Throws ValueError for a position of another
  /// dataset or another seed.
  void restore(const InputPosition& position) { steps_.restore(position, *epochs_); }

 private:
  uint64_t next_epoch() { return detail::start_epoch(*input_, *epochs_); }

  std::shared_ptr<const detail::DistributedInput> input_;
  std::shared_ptr<data::Epochs> epochs_;
  detail::StepIterator steps_;
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
/// A cheap handle; every loop over it is another epoch, also where the program distributes a dataset anew for every
/// epoch: epochs are those of the dataset's sources. Elements have the dataset's structure, with a PerReplica value
/// for each tensor; with one replica they have the tensors themselves.
template <class T>
class DistributedDataset {
 public:
  explicit DistributedDataset(std::shared_ptr<const detail::DistributedInput> input)
      : input_(std::move(input)), epochs_(detail::epochs_of(*input_)) {}
  /// `epochs` counts the epochs that all datasets with this counter have started.
  DistributedDataset(std::shared_ptr<const detail::DistributedInput> input, std::shared_ptr<data::Epochs> epochs)
      : input_(std::move(input)), epochs_(std::move(epochs)) {}

  /// Starts an epoch.
  DistributedIterator<T> iterator() const { return DistributedIterator<T>(input_, epochs_); }

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

 private:
  std::shared_ptr<const detail::DistributedInput> input_;
  std::shared_ptr<data::Epochs> epochs_;
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
