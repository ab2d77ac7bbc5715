#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/rows.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

/// All parts of a batch that fails are errors: workers that take different parts of the batches fail in the same step.
class SplitIterator final : public NodeIterator {
 public:
  SplitIterator(const NodePtr& input, int64_t parts, const Iteration& iteration)
      : input_(input->iterator(iteration)),
        pin_memory_(iteration.pin_memory),
        copier_(iteration.copier),
        parts_(parts),
        part_(parts) {}

  bool next(Element& element) override {
    if (part_ == parts_ && !read_batch()) return false;
    if (error_) {
      ++part_;
      std::rethrow_exception(error_);
    }
    const int64_t size = (rows_ + parts_ - 1) / parts_;
    const int64_t start = std::min(size * part_, rows_);
    ++part_;
    slice_rows(batch_, start, std::min(size, rows_ - start), element);
    return true;
  }

  int64_t skip(int64_t count) override {
    if (count <= 0) return 0;
    int64_t skipped = std::min(count, parts_ - part_);
    part_ += skipped;
    const int64_t batches = (count - skipped) / parts_;
    const int64_t passed = batches > 0 ? skip_batches(batches) : 0;
    skipped += passed * parts_;
    if (skipped < count && passed == batches && read_batch()) {
      part_ = count - skipped;
      skipped = count;
    }
    return skipped;
  }

 private:
  bool read_batch() {
    error_ = nullptr;
    try {
      if (!input_->next(batch_)) return false;
      own_tensors(batch_, pin_memory_, copier_.get());
      rows_ = num_rows(batch_, "split");
    } catch (...) {
      error_ = std::current_exception();
    }
    part_ = 0;
    return true;
  }

  int64_t skip_batches(int64_t count) {
    // Every shard has a part of every batch.
    const bool sound = SkipScope::current() != Skipped::Unknown;
    const SkipScope scope(sound ? Skipped::Sound : Skipped::Unknown);
    return input_->skip(count);
  }

  std::unique_ptr<NodeIterator> input_;
  bool pin_memory_;
  std::shared_ptr<lockstep::detail::HostCopier> copier_;
  int64_t parts_;
  /// The next part of the batch; `parts_` when there is none.
  int64_t part_;
  Element batch_;
  int64_t rows_ = 0;
  /// The exception of the batch.
  std::exception_ptr error_;
};

class SplitNode final : public UnaryNode {
 public:
  SplitNode(NodePtr input, int64_t parts) : UnaryNode(std::move(input)), parts_(parts) {}

  std::string name() const override { return c10::str("split(", parts_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<SplitNode>(std::move(inputs[0]), parts_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<SplitIterator>(input(), parts_, iteration);
  }
  BatchDivision batch_division() const override { return BatchDivision::Parts; }
  ElementSpec spec() const override {
    return input()->spec().map_leaves([&](LeafSpec leaf) {
      const PartialShape::Dim rows = leaf.shape.leading();
      const bool divides = rows && *rows % parts_ == 0;
      if (leaf.shape.has_rank() && leaf.shape.rank() > 0) {
        leaf.shape =
            leaf.shape.without_leading().with_leading(divides ? PartialShape::Dim(*rows / parts_) : std::nullopt);
      }
      return leaf;
    });
  }
  Cardinality cardinality() const override {
    return input()->cardinality().map([&](int64_t batches) { return batches * parts_; });
  }

 private:
  int64_t parts_;
};

}  // namespace

NodePtr make_split(NodePtr input, int64_t parts) {
  LOCKSTEP_CHECK_VALUE(parts >= 1, "[split] there must be at least one part: parts=", parts);
  check_has_rows(input->spec(), "split");
  return make_node<SplitNode>(std::move(input), parts);
}

}  // namespace lockstep::data::detail
