#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/function_random.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/matching_elements.h"
#include "lockstep/data/transforms/batching/padding.h"

namespace lockstep::data::detail {
namespace {

/// The parameters of the buckets.
struct Buckets {
  LengthFunction length;
  std::vector<int64_t> boundaries;
  std::vector<int64_t> batch_sizes;
  BucketOptions options;

  size_t of(int64_t length) const {
    return static_cast<size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), length) - boundaries.begin());
  }
};

/// The size of a leaf's first dimension, or nothing.
std::optional<int64_t> first_size(const Leaf& leaf) {
  const auto spec = ElementSpec::of(Element{{leaf}, nullptr});
  return spec.leaves->front().kind == LeafSpec::Kind::Tensor ? spec.leaves->front().shape.leading() : std::nullopt;
}

class BucketIterator final : public NodeIterator {
 public:
  BucketIterator(const NodePtr& input, Buckets buckets, FunctionRandom random, const Iteration& iteration)
      : input_(input->iterator(iteration)),
        buckets_(std::move(buckets)),
        random_(std::move(random)),
        pin_memory_(iteration.pin_memory),
        copier_(iteration.copier) {
    for (const int64_t size : buckets_.batch_sizes) collected_.emplace_back("bucket_by_length", size);
  }

  bool next(Element& batch) override {
    const auto bucket = fill_bucket();
    if (!bucket) return false;
    std::vector<Element> elements = collected_[*bucket].take();
    pad_and_join(elements, padding_of(*bucket, elements.front()), batch);
    return true;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    for (; skipped < count; ++skipped) {
      try {
        const auto bucket = fill_bucket();
        if (!bucket) break;
        collected_[*bucket].take();
      } catch (const std::exception&) {  // counts, as in `next`
      }
    }
    return skipped;
  }

 private:
  /// Reads until a bucket is full or, at the end, not empty. Returns its number.
  std::optional<size_t> fill_bucket() {
    throw_errors();
    while (const auto bucket = add_next()) {
      throw_errors();
      if (collected_[*bucket].size() == buckets_.batch_sizes[*bucket]) return bucket;
    }
    for (MatchingElements& each : collected_) each.end();
    throw_errors();
    if (buckets_.options.drop_remainder) return std::nullopt;
    const auto left =
        std::find_if(collected_.begin(), collected_.end(), [](const auto& each) { return each.size() > 0; });
    if (left == collected_.end()) return std::nullopt;
    return static_cast<size_t>(left - collected_.begin());
  }

  /// Adds the next element to its bucket and returns the bucket's number; nothing at the end.
  std::optional<size_t> add_next() {
    const int64_t ordinal = ordinal_++;  // before the call: an element that throws has its number, too
    Element element;
    if (!input_->next(element)) return std::nullopt;
    const int64_t length = random_(ordinal, [&] { return buckets_.length(element); });
    const size_t bucket = buckets_.of(length);
    check_length(length, bucket);
    find_sequences(element, length);
    release_excess(element);
    collected_[bucket].add(element);
    return bucket;
  }

  void throw_errors() {
    for (MatchingElements& each : collected_) each.throw_error();
  }

  void check_length(int64_t length, size_t bucket) const {
    const bool has_end = bucket < buckets_.boundaries.size();
    LOCKSTEP_CHECK_VALUE(has_end || !buckets_.options.pad_to_bucket_boundary,
                         "[bucket_by_length] an element is too long for pad_to_bucket_boundary: length=", length,
                         ", last boundary=", buckets_.boundaries.back(), "; add a boundary above it");
  }

  /// Determines which parts are sequences: those whose first size has always been the length of the element.
  void find_sequences(const Element& element, int64_t length) {
    if (!buckets_.options.pad_to_bucket_boundary) return;
    is_sequence_.resize(element.leaves.size(), true);
    for (size_t i = 0; i < element.leaves.size(); ++i) {
      is_sequence_[i] = is_sequence_[i] && first_size(element.leaves[i]) == length;
    }
  }

  Padding padding_of(size_t bucket, const Element& first) const {
    Padding padding{{}, {buckets_.options.padding_value}, pin_memory_, copier_, "bucket_by_length"};
    if (!buckets_.options.pad_to_bucket_boundary) return padding;
    const ElementSpec spec = ElementSpec::of(first);
    for (size_t i = 0; i < first.leaves.size(); ++i) {
      if (!is_sequence_[i]) {
        padding.shapes.emplace_back();
        continue;
      }
      std::vector<PartialShape::Dim> dims(static_cast<size_t>((*spec.leaves)[i].shape.rank()));
      dims.front() = buckets_.boundaries[bucket] - 1;
      padding.shapes.emplace_back(std::move(dims));
    }
    return padding;
  }

  std::unique_ptr<NodeIterator> input_;
  Buckets buckets_;
  FunctionRandom random_;
  int64_t ordinal_ = 0;
  bool pin_memory_;
  std::shared_ptr<lockstep::detail::HostCopier> copier_;
  std::vector<MatchingElements> collected_;
  std::vector<bool> is_sequence_;
};

class BucketNode final : public UnaryNode {
 public:
  BucketNode(NodePtr input, Buckets buckets) : UnaryNode(std::move(input)), buckets_(std::move(buckets)) {}

  std::string name() const override {
    return c10::str("bucket_by_length(", at::IntArrayRef(buckets_.boundaries), ", ",
                    at::IntArrayRef(buckets_.batch_sizes), ")");
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<BucketNode>(std::move(inputs[0]), buckets_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<BucketIterator>(input(), buckets_, FunctionRandom(depth(), iteration), iteration);
  }
  ElementSpec spec() const override {
    const auto& sizes = buckets_.batch_sizes;
    const bool all_equal = std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes.front(); });
    const bool fixed = all_equal && buckets_.options.drop_remainder;
    // Lengths differ, so the first size of one element is not that of others.
    const ElementSpec elements = input()->spec().map_leaves([](LeafSpec leaf) {
      if (leaf.shape.has_rank() && leaf.shape.rank() > 0) {
        leaf.shape = leaf.shape.without_leading().with_leading(std::nullopt);
      }
      return leaf;
    });
    return padded_spec(elements, {}, fixed ? PartialShape::Dim(sizes.front()) : std::nullopt);
  }
  Cardinality cardinality() const override {
    const Cardinality elements = input()->cardinality();
    return elements.is_known() ? Cardinality::unknown() : elements;
  }

 private:
  Buckets buckets_;
};

}  // namespace

NodePtr make_bucket_by_length(NodePtr input, LengthFunction length, std::vector<int64_t> boundaries,
                              std::vector<int64_t> batch_sizes, BucketOptions options) {
  LOCKSTEP_CHECK_VALUE(batch_sizes.size() == boundaries.size() + 1,
                       "[bucket_by_length] there must be one batch size more than boundaries: boundaries=",
                       boundaries.size(), ", batch_sizes=", batch_sizes.size());
  const bool ascending =
      std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>()) == boundaries.end();
  LOCKSTEP_CHECK_VALUE(ascending,
                       "[bucket_by_length] boundaries must ascend: boundaries=", at::IntArrayRef(boundaries));
  for (const int64_t size : batch_sizes) {
    LOCKSTEP_CHECK_VALUE(
        size >= 1, "[bucket_by_length] batch sizes must be at least 1: batch_sizes=", at::IntArrayRef(batch_sizes));
  }
  LOCKSTEP_CHECK_VALUE(!boundaries.empty() || !options.pad_to_bucket_boundary,
                       "[bucket_by_length] pad_to_bucket_boundary needs a boundary");
  return make_node<BucketNode>(std::move(input),
                               Buckets{std::move(length), std::move(boundaries), std::move(batch_sizes), options});
}

}  // namespace lockstep::data::detail
