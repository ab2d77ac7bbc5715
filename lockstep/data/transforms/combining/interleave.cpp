#include <algorithm>
#include <deque>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/buffering/read_ahead.h"
#include "lockstep/data/transforms/combining/expand.h"
#include "lockstep/data/transforms/element_counter.h"

namespace lockstep::data::detail {
namespace {

/// Cycles through its slots: each returns a block of elements of its dataset. A slot whose dataset has ended is
/// skipped, and gets the next dataset in the next cycle.
///
/// With several threads the threads read the datasets, and a few more datasets than slots are opened ahead: they get
/// slots in the order of the input, so the order of elements is the same.
class InterleaveIterator final : public NodeIterator {
 public:
  InterleaveIterator(ExpandInput input, const InterleaveOptions& options)
      : input_(std::move(input)), options_(options), places_(static_cast<size_t>(options.cycle_length)) {}

  bool next(Element& element) override {
    if (options_.num_threads > 1 && !threads_) start_threads();
    while (find_place()) {
      ++in_block_;  // before the call: an element that throws counts, too
      if (places_[place_].next(element)) return true;
      leave_place();
    }
    return false;
  }

  int64_t skip(int64_t count) override {
    if (threads_) return NodeIterator::skip(count);
    int64_t skipped = 0;
    int64_t try_rounds_at = 0;
    while (skipped < count) {
      try {
        if (!find_place()) break;
      } catch (const std::exception&) {  // one error of `next`
        ++skipped;
        continue;
      }
      if (in_block_ == 0 && skipped >= try_rounds_at) {
        skipped += skip_rounds(count - skipped);
        try_rounds_at = skipped + num_open_ * options_.block_length;
        if (skipped == count) break;
      }
      const int64_t wanted = std::min(count - skipped, options_.block_length - in_block_);
      const int64_t passed = places_[place_].skip(wanted);
      in_block_ += passed;
      skipped += passed;
      if (passed < wanted) leave_place();
    }
    return skipped;
  }

 private:
  /// A slot: an open dataset, if any.
  struct Place {
    std::unique_ptr<NodeIterator> iterator = nullptr;
    /// Counts the elements of the dataset; nothing where threads read it.
    std::optional<ElementCounter> counter = std::nullopt;
    int64_t taken = 0;

    explicit operator bool() const { return iterator != nullptr; }
    bool next(Element& element) {
      ++taken;
      if (!counter) return iterator->next(element);
      return counter->watched([&] { return iterator->next(element); });
    }
    int64_t skip(int64_t count) {
      const int64_t passed = counter->watched([&] { return iterator->skip(count); });
      taken += passed;
      return passed;
    }
  };

  /// Skips up to `count` elements in whole rounds, with one call for each open dataset: a shuffle in it does not fill
  /// its buffer for every block. Returns how many elements were skipped: none where a dataset ends before, or where its
  /// elements cannot be counted. At the beginning of a block.
  int64_t skip_rounds(int64_t count) {
    const bool may_open = num_open_ < static_cast<int64_t>(places_.size()) && !input_ended_;
    int64_t rounds = may_open ? 0 : count / num_open_ / options_.block_length;
    for (Place& place : places_) {
      if (rounds == 0) return 0;
      if (!place) continue;
      const auto available = place.counter->up_to(place.taken + rounds * options_.block_length);
      rounds = available ? std::min(rounds, (*available - place.taken) / options_.block_length) : 0;
    }
    if (rounds == 0) return 0;
    int64_t skipped = 0;
    for (Place& place : places_) {
      if (place) skipped += place.skip(rounds * options_.block_length);
    }
    const int64_t wanted = rounds * options_.block_length * num_open_;
    LOCKSTEP_CHECK_DATA(skipped == wanted,
                        "[interleave] a dataset has ended before the elements that were counted: ", "counted=", wanted,
                        ", found=", skipped, "; do not change files while they are read");
    return skipped;
  }

  /// Moves to the next slot, and opens a dataset for it if it has none. Returns false at the end.
  bool find_place() {
    if (in_block_ == options_.block_length) advance();
    while (num_open_ > 0 || !input_ended_) {
      if (places_[place_]) return true;
      if (!input_ended_) {
        places_[place_] = open();
        input_ended_ = !places_[place_];
        if (places_[place_]) ++num_open_;
      } else {
        advance();
      }
    }
    return false;
  }

  void advance() {
    place_ = (place_ + 1) % places_.size();
    in_block_ = 0;
  }

  void leave_place() {
    places_[place_] = {};
    --num_open_;
    advance();
  }

  /// Returns a slot with the next dataset, or an empty one at the end.
  Place open() {
    if (threads_) return {open_ahead()};
    Iteration iteration;
    const NodePtr dataset = input_.next_dataset(iteration);
    if (!dataset) return {};
    return {dataset->iterator(iteration), ElementCounter(dataset, iteration)};
  }

  /// Passes the open iterators to the threads after a skip.
  void start_threads() {
    const auto buffer_size = static_cast<size_t>(options_.block_length) + 1;
    threads_ = std::make_unique<ReadAheadThreads>(options_.num_threads, buffer_size);
    for (Place& place : places_) {
      if (!place) continue;
      auto iterator = std::make_shared<std::unique_ptr<NodeIterator>>(std::move(place.iterator));
      place = {threads_->add([iterator] { return std::move(*iterator); })};
    }
  }

  std::unique_ptr<NodeIterator> open_ahead() {
    const size_t wanted = places_.size() - static_cast<size_t>(num_open_) + static_cast<size_t>(options_.num_threads);
    while (!ahead_ended_ && ahead_.size() < wanted) add_ahead();
    if (ahead_.empty()) return nullptr;
    Ahead first = std::move(ahead_.front());
    ahead_.pop_front();
    if (first.error) std::rethrow_exception(first.error);
    first.iterator->wait_until_open();
    return std::move(first.iterator);
  }

  void add_ahead() {
    Ahead ahead;
    try {
      ExpandElement element;
      ahead_ended_ = !input_.next(element);
      if (ahead_ended_) return;
      ahead.iterator = threads_->add([make = input_.make(), element = std::move(element)]() mutable {
        return make(element)->iterator(element.iteration);
      });
    } catch (...) {
      ahead.error = std::current_exception();
    }
    ahead_.push_back(std::move(ahead));
  }

  /// A dataset that waits for a slot, or the exception of reading its element.
  struct Ahead {
    std::unique_ptr<ReadAheadIterator> iterator;
    std::exception_ptr error;
  };

  ExpandInput input_;
  InterleaveOptions options_;
  /// Declared before its users, so that it is destroyed after them.
  std::unique_ptr<ReadAheadThreads> threads_;
  std::deque<Ahead> ahead_;
  bool ahead_ended_ = false;
  std::vector<Place> places_;
  size_t place_ = 0;
  /// Elements of the current block that were returned.
  int64_t in_block_ = 0;
  int64_t num_open_ = 0;
  bool input_ended_ = false;
};

class InterleaveNode final : public ExpandNode {
 public:
  InterleaveNode(NodePtr input, DatasetFunction fn, InterleaveOptions options)
      : ExpandNode(std::move(input), std::move(fn)), options_(options) {}

  std::string name() const override {
    return c10::str("interleave(", options_.cycle_length, ", ", options_.block_length, ")");
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<InterleaveNode>(std::move(inputs[0]), fn(), options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<InterleaveIterator>(expand_input(iteration), options_);
  }

 private:
  InterleaveOptions options_;
};

}  // namespace

NodePtr make_interleave(NodePtr input, DatasetFunction fn, InterleaveOptions options) {
  LOCKSTEP_CHECK_VALUE(options.cycle_length >= 1,
                       "[interleave] at least one dataset must be read at a time: cycle_length=", options.cycle_length);
  LOCKSTEP_CHECK_VALUE(options.block_length >= 1,
                       "[interleave] blocks must have at least one element: block_length=", options.block_length);
  LOCKSTEP_CHECK_VALUE(options.num_threads >= 1,
                       "[interleave] there must be at least one thread: num_threads=", options.num_threads);
  return make_node<InterleaveNode>(std::move(input), std::move(fn), options);
}

}  // namespace lockstep::data::detail
