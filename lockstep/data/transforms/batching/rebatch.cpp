#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/row_stream.h"
#include "lockstep/data/transforms/batching/rows.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class RebatchIterator final : public NodeIterator {
 public:
  RebatchIterator(NodePtr input, std::vector<int64_t> sizes, BatchOptions options, const Iteration& iteration)
      : node_(std::move(input)),
        stream_(node_, iteration, "rebatch", RowMemory::Own),
        sizes_(std::move(sizes)),
        options_(options) {}

  bool next(Element& element) override {
    if (ended_) return false;
    if (sizes_[turn_] == 0) return next_empty(element);
    while (collected_ < sizes_[turn_] && stream_.find()) {
      const int64_t count = std::min(sizes_[turn_] - collected_, stream_.left());
      remember_shape();
      slice_rows(stream_.batch(), stream_.start(), count, pieces_.emplace_back());
      stream_.take(count);
      collected_ += count;
    }
    ended_ = collected_ < sizes_[turn_];
    if (collected_ == 0 || (ended_ && options_.drop_remainder)) return false;
    collected_ = 0;
    go_on();
    std::vector<Element> pieces = std::exchange(pieces_, {});
    concat_rows(pieces, "rebatch", element);
    return true;
  }

  int64_t skip(int64_t count) override {
    if (ended_ || count <= 0) return 0;
    // A batch that fails is an error in place of any number of rows: only `next` can count.
    if (stream_.may_fail() && SkipScope::current() != Skipped::Sound) return NodeIterator::skip(count);
    int64_t wanted = 0;
    for (int64_t i = 0; i < count && wanted < kEnough; ++i) wanted += size_after(i);
    int64_t rows = collected_ + stream_.skip(wanted - collected_);
    collected_ = 0;
    pieces_.clear();
    int64_t skipped = 0;
    for (; skipped < count && skip_one(rows); ++skipped) {
    }
    return skipped;
  }

 private:
  /// More rows than any dataset has.
  static constexpr int64_t kEnough = std::numeric_limits<int64_t>::max() / 2;

  int64_t size_after(int64_t turns) const { return sizes_[(turn_ + static_cast<size_t>(turns)) % sizes_.size()]; }
  void go_on() { turn_ = (turn_ + 1) % sizes_.size(); }

  /// Subtracts the rows of the next batch from the number of skipped rows; false where there are too few.
  bool skip_one(int64_t& rows) {
    const int64_t size = sizes_[turn_];
    Element empty;
    if (size == 0 && rows == 0) return next_empty(empty);
    ended_ = rows < size;
    if (ended_ && (rows == 0 || options_.drop_remainder)) return false;
    rows -= std::min(rows, size);
    if (ended_) return true;
    go_on();
    return true;
  }

  /// Stores the structure of a batch of no rows, where there can be one.
  void remember_shape() {
    if (!empty_ && std::find(sizes_.begin(), sizes_.end(), 0) != sizes_.end()) {
      slice_rows(stream_.batch(), 0, 0, empty_.emplace());
    }
  }

  /// A batch of no rows has the structure of the first batch; without one, that of the spec.
  bool next_empty(Element& element) {
    if (!empty_ && stream_.find()) remember_shape();
    if (!empty_) empty_ = empty_rows(node_->spec());
    ended_ = !empty_;
    if (ended_) return false;
    element = *empty_;
    go_on();
    return true;
  }

  NodePtr node_;
  RowStream stream_;
  std::vector<int64_t> sizes_;
  BatchOptions options_;
  /// The index of the next size.
  size_t turn_ = 0;
  /// The pieces of the next batch that were read before an exception.
  std::vector<Element> pieces_;
  int64_t collected_ = 0;
  std::optional<Element> empty_;
  bool ended_ = false;
};

class RebatchNode final : public UnaryNode {
 public:
  RebatchNode(NodePtr input, std::vector<int64_t> sizes, BatchOptions options)
      : UnaryNode(std::move(input)), sizes_(std::move(sizes)), options_(options) {}

  std::string name() const override {
    std::string text;
    for (const int64_t size : sizes_) text += (text.empty() ? "" : ", ") + std::to_string(size);
    if (sizes_.size() > 1) text = "{" + text + "}";
    return "rebatch(" + text + (options_.drop_remainder ? ", drop_remainder)" : ")");
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<RebatchNode>(std::move(inputs[0]), sizes_, options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<RebatchIterator>(input(), sizes_, options_, iteration);
  }
  BatchDivision batch_division() const override { return BatchDivision::Rows; }
  ElementSpec spec() const override {
    const int64_t size = sizes_.front();
    const bool all_equal = std::all_of(sizes_.begin(), sizes_.end(), [&](int64_t each) { return each == size; });
    return input()->spec().map_leaves([&](LeafSpec leaf) {
      if (!leaf.shape.has_rank() || leaf.shape.rank() == 0) return leaf;
      const PartialShape::Dim before = leaf.shape.leading();
      const bool fixed = all_equal && (options_.drop_remainder || (before && *before % size == 0));
      leaf.shape = leaf.shape.without_leading().with_leading(fixed ? PartialShape::Dim(size) : std::nullopt);
      return leaf;
    });
  }
  Cardinality cardinality() const override {
    const Cardinality batches = input()->cardinality();
    return batches.is_known() ? Cardinality::unknown() : batches;
  }

 private:
  std::vector<int64_t> sizes_;
  BatchOptions options_;
};

}  // namespace

NodePtr make_rebatch(NodePtr input, std::vector<int64_t> sizes, BatchOptions options) {
  for (const int64_t size : sizes) {
    LOCKSTEP_CHECK_VALUE(size >= 0, "[rebatch] sizes must not be negative: size=", size);
  }
  const bool any = std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
  LOCKSTEP_CHECK_VALUE(any, "[rebatch] at least one of the sizes must be above 0: sizes=", at::IntArrayRef(sizes));
  check_has_rows(input->spec(), "rebatch");
  return make_node<RebatchNode>(std::move(input), std::move(sizes), options);
}

}  // namespace lockstep::data::detail
