#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/assemble.h"
#include "lockstep/data/transforms/batching/batching_node.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class BatchIterator final : public NodeIterator {
 public:
  BatchIterator(const NodePtr& input, int64_t size, BatchOptions options, const Iteration& iteration)
      : input_(input->iterator(iteration)),
        may_fail_(may_fail(*input)),
        size_(size),
        options_(options),
        assembler_(
            {.capacity = size, .pin_memory = iteration.pin_memory, .copier = iteration.copier, .operation = "batch"}) {}

  bool next(Element& batch) override {
    assembler_.throw_error();
    while (assembler_.size() < size_ && add_some()) assembler_.throw_error();
    const bool complete = assembler_.size() == size_;
    if (assembler_.size() == 0 || (!complete && options_.drop_remainder)) return false;
    assembler_.finish(batch);
    return true;
  }

  int64_t skip(int64_t count) override {
    // An element that fails is an error, and its row is missing: only `next` can count.
    if (may_fail_ && SkipScope::current() != Skipped::Sound) return NodeIterator::skip(count);
    // After an error in the middle of a batch.
    if (assembler_.size() > 0 || assembler_.has_misfits() || next_ < end_ || error_) return NodeIterator::skip(count);
    count = std::min(count, std::numeric_limits<int64_t>::max() / size_);
    const int64_t rows = input_->skip(count * size_);
    return options_.drop_remainder ? rows / size_ : (rows + size_ - 1) / size_;
  }

 private:
  static constexpr size_t kAhead = 8;

  /// Reads a few elements and copies them. Returns false at the end. Every error is thrown by a call of its own; the
  /// elements that were read before and behind it stay for later calls.
  bool add_some() {
    if (next_ == end_ && error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (next_ == end_ && !read_some()) {
      assembler_.end();
      assembler_.throw_error();
      return false;
    }
    while (next_ < end_ && assembler_.size() < size_) assembler_.add(ahead_[next_++]);
    return true;
  }

  /// Prefetches the beginnings of rows into the processor's cache: rows of a shuffled table are scattered in memory.
  /// Returns false at the end.
  bool read_some() {
    const auto wanted = std::min<size_t>(kAhead, static_cast<size_t>(size_ - assembler_.size()));
    next_ = end_ = 0;
    try {
      while (end_ < wanted && input_->next(ahead_[end_])) prefetch_rows(ahead_[end_++]);
    } catch (...) {
      error_ = std::current_exception();
    }
    return end_ > 0 || error_;
  }

  static void prefetch_rows(const Element& element) {
    constexpr size_t kCacheLine = 64;
    constexpr size_t kLines = 8;  // the hardware prefetcher continues
    for (const Leaf& leaf : element.leaves) {
      const auto* row = leaf.as<Row>();
      if (row == nullptr) continue;
      const size_t bytes = std::min(row->type->num_bytes, kLines * kCacheLine);
      for (size_t offset = 0; offset < bytes; offset += kCacheLine) __builtin_prefetch(row->data + offset);
    }
  }

  std::unique_ptr<NodeIterator> input_;
  bool may_fail_;
  int64_t size_;
  BatchOptions options_;
  BatchAssembler assembler_;
  std::array<Element, kAhead> ahead_;
  /// The elements of `ahead_` that were read and not yet added.
  size_t next_ = 0;
  size_t end_ = 0;
  /// The exception of the element behind them.
  std::exception_ptr error_;
};

class BatchNode final : public BatchingNode {
 public:
  BatchNode(NodePtr input, int64_t size, BatchOptions options)
      : BatchingNode(std::move(input), size), options_(options) {}

  std::string name() const override { return call("batch"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<BatchNode>(std::move(inputs[0]), size(), options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<BatchIterator>(input(), size(), options_, iteration);
  }
  ElementSpec spec() const override {
    return input()->spec().map_leaves([&](LeafSpec leaf) {
      if (leaf.kind != LeafSpec::Kind::Tensor)
        return LeafSpec{LeafSpec::Kind::List, std::nullopt, PartialShape{rows()}};
      leaf.shape = leaf.shape.with_leading(rows());
      return leaf;
    });
  }

 private:
  bool drops_remainder() const override { return options_.drop_remainder; }

  BatchOptions options_;
};

}  // namespace

NodePtr make_batch(NodePtr input, int64_t size, BatchOptions options) {
  LOCKSTEP_CHECK_VALUE(size >= 1, "[batch] the size must be at least 1: size=", size);
  return make_node<BatchNode>(std::move(input), size, options);
}

}  // namespace lockstep::data::detail
