#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/element/leaf.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::detail {
namespace {

class RangeIterator final : public NodeIterator {
 public:
  RangeIterator(int64_t start, int64_t step, int64_t count) : value_(start), step_(step), left_(count) {}

  bool next(Element& element) override {
    if (left_ == 0) return false;
    element.clear();
    element.leaves.push_back(number_of(value_));
    value_ += step_;
    --left_;
    return true;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = std::min(count, left_);
    value_ += skipped * step_;
    left_ -= skipped;
    return skipped;
  }

 private:
  int64_t value_;
  int64_t step_;
  int64_t left_;
};

class RangeNode final : public Node {
 public:
  RangeNode(int64_t start, int64_t stop, int64_t step) : Node({}), start_(start), stop_(stop), step_(step) {}

  std::string name() const override {
    if (start_ == 0 && step_ == 1) return c10::str("range(", stop_, ")");
    return c10::str("range(", start_, ", ", stop_, ", ", step_, ")");
  }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration&) const override {
    return std::make_unique<RangeIterator>(start_, step_, count());
  }
  ElementSpec spec() const override { return static_spec<int64_t>(); }
  Cardinality cardinality() const override { return Cardinality::exactly(count()); }

 private:
  int64_t count() const {
    if (step_ > 0) return stop_ > start_ ? (stop_ - start_ - 1) / step_ + 1 : 0;
    return start_ > stop_ ? (start_ - stop_ - 1) / -step_ + 1 : 0;
  }

  int64_t start_;
  int64_t stop_;
  int64_t step_;
};

}  // namespace

NodePtr make_range(int64_t start, int64_t stop, int64_t step) {
  LOCKSTEP_CHECK_VALUE(step != 0, "[range] the step must not be zero: start=", start, ", stop=", stop);
  return make_node<RangeNode>(start, stop, step);
}

}  // namespace lockstep::data::detail
