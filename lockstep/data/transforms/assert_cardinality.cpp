#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class AssertCardinalityIterator final : public NodeIterator {
 public:
  AssertCardinalityIterator(std::unique_ptr<NodeIterator> input, int64_t count)
      : input_(std::move(input)), count_(count) {}

  bool next(Element& element) override {
    if (ended_) return false;
    ++seen_;  // before the call: an element that throws counts, too
    const bool found = input_->next(element);
    if (!found) --seen_;
    check(found);
    return found;
  }

  /// A wrong number is an error of `next`, which counts as one element: the first one too many, or that behind the
  /// last.
  int64_t skip(int64_t count) override {
    if (ended_ || count <= 0) return 0;
    const int64_t wanted = count_ < 0 ? count : std::min(count, count_ - seen_ + 1);
    const int64_t skipped = input_->skip(wanted);
    seen_ += skipped;
    const bool too_few = skipped < wanted && seen_ != count_;
    ended_ = skipped < wanted || (count_ >= 0 && seen_ > count_);
    return skipped + (too_few ? 1 : 0);
  }

 private:
  void check(bool goes_on) {
    ended_ = !goes_on || (count_ >= 0 && seen_ > count_);
    const bool as_said = !ended_ || seen_ == count_;
    LOCKSTEP_CHECK_VALUE(as_said,
                         "[assert_cardinality] the dataset must have the stated number of elements: stated=", count_,
                         ", found=", goes_on ? "at least " : "", seen_);
  }

  std::unique_ptr<NodeIterator> input_;
  int64_t count_;
  int64_t seen_ = 0;
  bool ended_ = false;
};

class AssertCardinalityNode final : public UnaryNode {
 public:
  AssertCardinalityNode(NodePtr input, int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::string name() const override { return c10::str("assert_cardinality(", count_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<AssertCardinalityNode>(std::move(inputs[0]), count_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<AssertCardinalityIterator>(input()->iterator(iteration), count_);
  }
  Cardinality cardinality() const override {
    return count_ < 0 ? Cardinality::infinite() : Cardinality::exactly(count_);
  }
  bool asserts_cardinality() const override { return true; }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  int64_t count_;
};

}  // namespace

NodePtr make_assert_cardinality(NodePtr input, int64_t count) {
  LOCKSTEP_CHECK_VALUE(count >= -1,
                       "[assert_cardinality] the count must be at least 0, or -1 for no end: count=", count);
  return make_node<AssertCardinalityNode>(std::move(input), count);
}

}  // namespace lockstep::data::detail
