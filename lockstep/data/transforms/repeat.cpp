#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class RepeatIterator final : public NodeIterator {
 public:
  RepeatIterator(NodePtr input, int64_t count, const Iteration& iteration)
      : input_(std::move(input)), count_(count), iteration_(iteration) {
    if (!input_->is_replayable()) return;
    epoch_size_ = input_->cardinality().size();
    errors_change_size_ = errors_change_size(*input_);
  }

  bool next(Element& element) override {
    while (open()) {
      // Counted before the call: an element that throws also shows that the epoch is not empty.
      const bool was_empty = std::exchange(is_empty_, false);
      if (current_->next(element)) return true;
      is_empty_ = was_empty;
      close();
    }
    return false;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count) {
      if (!current_) skipped += skip_epochs(count - skipped);
      if (skipped == count || !open()) break;
      const int64_t passed = current_->skip(count - skipped);
      if (passed > 0) is_empty_ = false;
      skipped += passed;
      if (skipped < count) close();
    }
    return skipped;
  }

 private:
  /// Opens the next epoch if none is open. Returns false after the last one.
  bool open() {
    if (current_) return true;
    if (epoch_ == count_ || ended_) return false;
    current_ = input_->iterator(iteration_.of_pass(static_cast<uint64_t>(epoch_)));
    is_empty_ = true;
    return true;
  }

  void close() {
    current_.reset();
    ++epoch_;
    // An empty dataset that is repeated without end is empty.
    if (count_ < 0 && is_empty_) ended_ = true;
  }

  /// Skips epochs of known length without opening them.
  int64_t skip_epochs(int64_t count) {
    if (errors_change_size_ && SkipScope::current() != Skipped::Sound) return 0;
    if (!epoch_size_ || *epoch_size_ == 0 || ended_) return 0;
    int64_t epochs = count / *epoch_size_;
    if (count_ >= 0) epochs = std::min(epochs, count_ - epoch_);
    epoch_ += epochs;
    return epochs * *epoch_size_;
  }

  NodePtr input_;
  int64_t count_;
  Iteration iteration_;
  std::optional<int64_t> epoch_size_;
  bool errors_change_size_ = false;
  int64_t epoch_ = 0;
  std::unique_ptr<NodeIterator> current_;
  bool is_empty_ = true;
  bool ended_ = false;
};

class RepeatNode final : public UnaryNode {
 public:
  RepeatNode(NodePtr input, int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::string name() const override { return count_ < 0 ? "repeat()" : c10::str("repeat(", count_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<RepeatNode>(std::move(inputs[0]), count_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<RepeatIterator>(input(), count_, iteration);
  }
  Cardinality cardinality() const override {
    const Cardinality once = input()->cardinality();
    if (count_ == 0 || once == Cardinality::exactly(0)) return Cardinality::exactly(0);
    if (count_ < 0) return Cardinality::infinite();
    return once.map([&](int64_t size) { return size * count_; });
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }

 private:
  int64_t count_;
};

}  // namespace

NodePtr make_repeat(NodePtr input, int64_t count) {
  LOCKSTEP_CHECK_VALUE(count >= -1, "[repeat] the count must be at least 0, or -1 for no end: count=", count);
  return make_node<RepeatNode>(std::move(input), count);
}

}  // namespace lockstep::data::detail
