#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/batching_node.h"
#include "lockstep/data/transforms/batching/matching_elements.h"
#include "lockstep/data/transforms/batching/padding.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class PaddedBatchIterator final : public NodeIterator {
 public:
  PaddedBatchIterator(std::unique_ptr<NodeIterator> input, int64_t size, bool drop_remainder, Padding padding)
      : input_(std::move(input)),
        size_(size),
        drop_remainder_(drop_remainder),
        padding_(std::move(padding)),
        elements_("padded_batch", size) {}

  bool next(Element& batch) override {
    elements_.throw_error();
    while (elements_.size() < size_ && add_next()) elements_.throw_error();
    if (elements_.size() == 0 || (drop_remainder_ && elements_.size() < size_)) return false;
    std::vector<Element> elements = elements_.take();
    pad_and_join(elements, padding_, batch);
    return true;
  }

  int64_t skip(int64_t count) override {
    if (count <= 0) return 0;
    // Any element may fail, at least for its shape, and is then missing in the batch: only `next` can count.
    if (SkipScope::current() != Skipped::Sound || elements_.has_misfits()) return NodeIterator::skip(count);
    const int64_t most = std::min(count, std::numeric_limits<int64_t>::max() / size_);
    const int64_t rows = elements_.size() + input_->skip(most * size_ - elements_.size());
    elements_.take();
    return drop_remainder_ ? rows / size_ : (rows + size_ - 1) / size_;
  }

 private:
  /// Reads an element; false at the end, where there are no more errors.
  bool add_next() {
    Element element;
    if (!input_->next(element)) {
      elements_.end();
      elements_.throw_error();
      return false;
    }
    check_fits(element, padding_);
    elements_.add(element);
    return true;
  }

  std::unique_ptr<NodeIterator> input_;
  int64_t size_;
  bool drop_remainder_;
  Padding padding_;
  /// The elements of the next batch; they survive an exception.
  MatchingElements elements_;
};

class PaddedBatchNode final : public BatchingNode {
 public:
  PaddedBatchNode(NodePtr input, int64_t size, PaddedBatchOptions options)
      : BatchingNode(std::move(input), size), options_(std::move(options)) {}

  std::string name() const override { return call("padded_batch"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<PaddedBatchNode>(std::move(inputs[0]), size(), options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    Padding padding{options_.padded_shapes, options_.padding_values, iteration.pin_memory, iteration.copier,
                    "padded_batch"};
    return std::make_unique<PaddedBatchIterator>(input()->iterator(iteration), size(), options_.drop_remainder,
                                                 std::move(padding));
  }
  ElementSpec spec() const override { return padded_spec(input()->spec(), options_.padded_shapes, rows()); }

 private:
  bool drops_remainder() const override { return options_.drop_remainder; }

  PaddedBatchOptions options_;
};

}  // namespace

NodePtr make_padded_batch(NodePtr input, int64_t size, PaddedBatchOptions options) {
  LOCKSTEP_CHECK_VALUE(size >= 1, "[padded_batch] the size must be at least 1: size=", size);
  const ElementSpec spec = input->spec();
  if (spec.leaves) {
    const size_t parts = spec.leaves->size();
    LOCKSTEP_CHECK_VALUE(options.padded_shapes.empty() || options.padded_shapes.size() == parts,
                         "[padded_batch] there must be one padded shape for each part of the element: padded_shapes=",
                         options.padded_shapes.size(), ", parts=", parts);
    LOCKSTEP_CHECK_VALUE(options.padding_values.size() == 1 || options.padding_values.size() == parts,
                         "[padded_batch] there must be one padding value, or one for each part: padding_values=",
                         options.padding_values.size(), ", parts=", parts);
  }
  return make_node<PaddedBatchNode>(std::move(input), size, std::move(options));
}

}  // namespace lockstep::data::detail
