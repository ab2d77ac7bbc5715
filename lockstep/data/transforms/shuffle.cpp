#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/element_counter.h"
#include "lockstep/data/transforms/element_errors.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

/// A larger buffer is allocated only as elements arrive.
constexpr int64_t kMaxReserved = 1 << 20;
constexpr size_t kCacheLine = 64;
/// Where so many elements fail before one does not, no more of them are made.
constexpr int64_t kFirstErrors = 64;
/// More elements than any program reads; sums of a few do not overflow.
constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max() / 4;

/// Fills the buffer, then draws a slot, returns its element and refills the slot; after the end of the input the last
/// element moves to the slot instead. An element that fails has a slot, too; it is thrown when the slot is drawn.
///
/// Where the first elements all fail, or an error is not of an element, the whole dataset fails: each of its elements
/// is this error, so that none is delivered out of order and the number stays the same.
class ShuffleIterator final : public NodeIterator {
 public:
  ShuffleIterator(const NodePtr& input, int64_t buffer_size, uint64_t seed, const Iteration& iteration)
      : node_(input),
        input_(input->iterator(iteration)),
        counter_(input, iteration),
        capacity_(static_cast<size_t>(buffer_size)),
        random_(seed) {
    const int64_t known = input->cardinality().size().value_or(kMaxReserved);
    buffer_.reserve(static_cast<size_t>(std::min({buffer_size, known, kMaxReserved})));
  }

  bool next(Element& element) override {
    if (!failure_) top_up();
    if (failure_) return fail();
    if (buffer_.empty()) return false;
    ++drawn_;
    hole_ = random_.below(buffer_.size());
    has_hole_ = true;
    if (!errors_.empty()) throw_error(hole_);
    element = std::move(buffer_[hole_]);
    prefetch_next();
    return true;
  }

  int64_t skip(int64_t count) override {
    if (count <= 0) return 0;
    if (failure_) return skip_failed(count);
    const bool started = !buffer_.empty() || input_ended_;
    if (started && is_few(count, buffer_.size())) return NodeIterator::skip(count);
    const auto available = elements_left(count);
    if (!available) return NodeIterator::skip(count);
    if (!started && is_few(count, std::min(capacity_, static_cast<size_t>(*available)))) {
      return NodeIterator::skip(count);
    }
    if (!started) {
      make_first();
      if (failure_) return skip_failed(count);
      return simulate(count, *available - taken_);
    }
    return simulate(count, *available);
  }

 private:
  /// Whether elements are drawn one by one: nearly all of the buffer stays, so that nearly all of what is read is
  /// needed, and a pass over the buffer would cost more.
  static bool is_few(int64_t count, size_t buffered) { return count < static_cast<int64_t>(buffered / 4); }

  /// Fills the buffer as far as there are elements.
  void top_up() {
    if (has_hole_) {
      if (read(hole_)) {
        has_hole_ = false;
        return;
      }
      move_last_to(hole_);
      has_hole_ = false;
    }
    while (may_add()) add_slot();
  }

  bool may_add() const { return !input_ended_ && !failure_ && buffer_.size() < capacity_; }

  void add_slot() {
    buffer_.emplace_back();
    if (!read(buffer_.size() - 1)) buffer_.pop_back();
    const bool only_errors = drawn_ == 0 && taken_ == static_cast<int64_t>(errors_.size());
    if (only_errors && taken_ == kFirstErrors) give_up_on_first();
  }

  /// Before elements are skipped: makes the first ones up to one that does not fail, as `next` does.
  void make_first() {
    if (SkipScope::current() == Skipped::Sound || !may_fail(*node_)) return;
    while (may_add() && errors_.size() == buffer_.size()) add_slot();
  }

  void give_up_on_first() {
    const std::string first = text_of_error(errors_.at(0));
    give_up(std::make_exception_ptr(lockstep::detail::make_error<DatasetError>(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        c10::str("[shuffle] one of the first elements must not fail: failed=", kFirstErrors,
                 ", dataset=", describe(*node_),
                 "; put ignore_errors() before shuffle to leave them out; the first error: ", first))));
  }

  void give_up(std::exception_ptr failure) {
    failure_ = std::move(failure);
    buffer_.clear();
    errors_.clear();
    has_hole_ = false;
  }

  /// Throws for each element that the dataset would have had; false at the end.
  bool fail() {
    if (skip_failed(1) == 0) return false;
    std::rethrow_exception(failure_);
  }

  int64_t skip_failed(int64_t count) {
    const int64_t of_taken = std::min(count, taken_ - drawn_);
    const int64_t of_input = of_taken < count ? input_->skip(count - of_taken) : 0;
    taken_ += of_input;
    drawn_ += of_taken + of_input;
    return of_taken + of_input;
  }

  /// Moves the last element to a slot that has none.
  void move_last_to(size_t slot) {
    const size_t last = buffer_.size() - 1;
    if (slot < last) {
      std::swap(buffer_[slot], buffer_.back());
      if (!errors_.empty()) move_error(last, slot);
    }
    buffer_.pop_back();
  }

  void move_error(size_t from, size_t to) {
    auto error = errors_.extract(from);
    if (error.empty()) return;
    error.key() = to;
    errors_.insert(std::move(error));
  }

  void throw_error(size_t slot) {
    const auto error = errors_.extract(slot);
    if (!error.empty()) std::rethrow_exception(error.mapped());
  }

  /// Prefetches the slot that will be drawn next into the processor's cache, as the buffer is often larger than the
  /// cache.
  void prefetch_next() const {
    SmallRandom ahead = random_;
    const auto* place = reinterpret_cast<const char*>(&buffer_[ahead.below(buffer_.size())]);
    for (size_t offset = 0; offset < sizeof(Element); offset += kCacheLine) __builtin_prefetch(place + offset);
  }

  /// Reads the next element, or its exception, into a slot; false at the end.
  bool read(size_t slot) {
    if (input_ended_) return false;
    try {
      input_ended_ = !input_->next(buffer_[slot]);
      if (input_ended_) return false;
      release_excess(buffer_[slot]);
    } catch (...) {
      ++taken_;
      std::exception_ptr error = std::current_exception();
      if (!is_of_an_element(error)) {
        give_up(std::move(error));
        return true;
      }
      buffer_[slot].clear();
      errors_[slot] = std::move(error);
      return true;
    }
    ++taken_;
    return true;
  }

  /// How many elements the input still has, or the most that `count` draws can need; nothing where counting would
  /// consume them.
  std::optional<int64_t> elements_left(int64_t count) {
    if (input_ended_) return 0;
    // Each draw needs one element at most, beyond those that fill the buffer.
    const int64_t needed = std::min(count, kNoEnd) + std::min(static_cast<int64_t>(capacity_), kNoEnd);
    const auto elements = counter_.up_to(taken_ + needed);
    return elements ? std::optional(std::max<int64_t>(*elements - taken_, 0)) : std::nullopt;
  }

  /// Draws as `next` does, with the numbers of elements in place of elements, so that only the elements that are in the
  /// buffer afterwards are read. Negative numbers are elements that are already in the buffer: ~number is their slot.
  int64_t simulate(int64_t count, int64_t available) {
    std::vector<int64_t> places(buffer_.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = ~static_cast<int64_t>(i);
    int64_t read = 0;
    int64_t skipped = 0;
    for (; skipped < count; ++skipped) {
      if (has_hole_ && read < available) {
        places[hole_] = read++;
      } else if (has_hole_) {
        places[hole_] = places.back();
        places.pop_back();
      }
      has_hole_ = false;
      while (places.size() < capacity_ && read < available) places.push_back(read++);
      if (places.empty()) break;
      hole_ = random_.below(places.size());
      has_hole_ = true;
    }
    drawn_ += skipped;
    fetch(places, read);
    return skipped;
  }

  /// Fills the buffer with the elements whose numbers are in `places`; the others of the next `read` elements of the
  /// input are skipped. The empty slot gets none.
  void fetch(const std::vector<int64_t>& places, int64_t read) {
    std::vector<Element> buffer(places.size());
    std::unordered_map<size_t, std::exception_ptr> errors;
    std::vector<std::pair<int64_t, size_t>> wanted;
    for (size_t i = 0; i < places.size(); ++i) {
      if (has_hole_ && i == hole_) continue;
      if (places[i] < 0) {
        const auto slot = static_cast<size_t>(~places[i]);
        buffer[i] = std::move(buffer_[slot]);
        if (const auto error = errors_.find(slot); error != errors_.end()) errors[i] = error->second;
      } else {
        wanted.emplace_back(places[i], i);
      }
    }
    std::sort(wanted.begin(), wanted.end());
    buffer_ = std::move(buffer);
    errors_ = std::move(errors);
    const int64_t before = taken_;
    for (const auto& [number, slot] : wanted) {
      skip_to(before + number);
      if (!this->read(slot)) fail_ended_early();
      if (failure_) break;
    }
    skip_to(before + read);
  }

  /// Skips elements of the input up to number `position`.
  void skip_to(int64_t position) {
    if (position <= taken_) return;
    taken_ += input_->skip(position - taken_);
    if (taken_ != position) fail_ended_early();
  }

  /// What is in the buffer is lost: slots have no elements.
  [[noreturn]] void fail_ended_early() {
    buffer_.clear();
    errors_.clear();
    has_hole_ = false;
    input_ended_ = true;
    LOCKSTEP_THROW(DataError,
                   "[shuffle] the dataset has ended before the elements that were counted; do not change files while "
                   "they are read");
  }

  NodePtr node_;
  std::unique_ptr<NodeIterator> input_;
  ElementCounter counter_;
  size_t capacity_;
  SmallRandom random_;
  std::vector<Element> buffer_;
  /// The exceptions of slots whose elements have failed.
  std::unordered_map<size_t, std::exception_ptr> errors_;
  /// The slot of the last returned element; the next call refills it.
  size_t hole_ = 0;
  bool has_hole_ = false;
  bool input_ended_ = false;
  /// Elements that were read from the input, and those of them that were returned, thrown or skipped.
  int64_t taken_ = 0;
  int64_t drawn_ = 0;
  /// What the whole dataset has failed with.
  std::exception_ptr failure_;
};

class ShuffleNode final : public UnaryNode {
 public:
  ShuffleNode(NodePtr input, int64_t buffer_size, ShuffleOptions options)
      : UnaryNode(std::move(input)), buffer_size_(buffer_size), options_(options) {}

  std::string name() const override {
    const std::string seed = options_.seed ? c10::str(", seed=", *options_.seed) : "";
    return c10::str("shuffle(", buffer_size_, seed, options_.reshuffle_each_iteration ? "" : ", same_each_iteration",
                    ")");
  }
  Role role() const override { return Role::Shuffle; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<ShuffleNode>(std::move(inputs[0]), buffer_size_, options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    Iteration of_order = iteration;
    if (!options_.reshuffle_each_iteration) of_order.epoch = 0;
    return std::make_unique<ShuffleIterator>(input(), buffer_size_, random_seed(options_.seed, depth(), of_order),
                                             iteration);
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }

 private:
  int64_t buffer_size_;
  ShuffleOptions options_;
};

}  // namespace

NodePtr make_shuffle(NodePtr input, int64_t buffer_size, ShuffleOptions options) {
  LOCKSTEP_CHECK_VALUE(buffer_size >= 1,
                       "[shuffle] the buffer must hold at least one element: buffer_size=", buffer_size);
  return make_node<ShuffleNode>(std::move(input), buffer_size, options);
}

}  // namespace lockstep::data::detail
