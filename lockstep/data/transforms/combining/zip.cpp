#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/combining/separate_caches.h"

namespace lockstep::data::detail {
namespace {

/// Concatenates the layouts of elements; caches the last result, because layouts rarely change.
class JoinedLayout {
 public:
  const std::shared_ptr<const Layout>& of(const std::vector<Element>& parts) {
    bool same = last_.size() == parts.size();
    for (size_t i = 0; same && i < parts.size(); ++i) same = last_[i] == parts[i].layout;
    if (!same) join(parts);
    return joined_;
  }

 private:
  void join(const std::vector<Element>& parts) {
    last_.clear();
    for (const Element& part : parts) last_.push_back(part.layout);
    const auto with_layout = std::count_if(last_.begin(), last_.end(), [](const auto& layout) { return bool(layout); });
    if (with_layout <= 1) {
      const auto only = std::find_if(last_.begin(), last_.end(), [](const auto& layout) { return bool(layout); });
      joined_ = only == last_.end() ? nullptr : *only;
      return;
    }
    auto joined = std::make_shared<Layout>();
    for (const auto& layout : last_) {
      if (!layout) continue;
      joined->sizes.insert(joined->sizes.end(), layout->sizes.begin(), layout->sizes.end());
      joined->keys.insert(joined->keys.end(), layout->keys.begin(), layout->keys.end());
    }
    joined_ = std::move(joined);
  }

  std::vector<std::shared_ptr<const Layout>> last_;
  std::shared_ptr<const Layout> joined_;
};

class ZipIterator final : public NodeIterator {
 public:
  explicit ZipIterator(std::vector<std::unique_ptr<NodeIterator>> inputs)
      : inputs_(std::move(inputs)), parts_(inputs_.size()) {}

  bool next(Element& element) override {
    if (ended_ || !read_parts()) return false;
    element.clear();
    for (Element& part : parts_) {
      for (Leaf& leaf : part.leaves) element.leaves.push_back(std::move(leaf));
    }
    element.layout = layout_.of(parts_);
    return true;
  }

  int64_t skip(int64_t count) override {
    if (ended_) return 0;
    int64_t skipped = count;
    std::exception_ptr error;
    for (const auto& input : inputs_) {
      try {
        skipped = std::min(skipped, input->skip(count));
      } catch (...) {  // the inputs stay aligned
        if (!error) error = std::current_exception();
      }
    }
    ended_ = skipped < count;
    if (error) std::rethrow_exception(error);
    return skipped;
  }

 private:
  /// Reads one element of each input, also after one has thrown: the inputs stay aligned.
  bool read_parts() {
    std::exception_ptr error;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      try {
        if (!inputs_[i]->next(parts_[i])) ended_ = true;
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error && !ended_) std::rethrow_exception(error);
    return !ended_;
  }

  std::vector<std::unique_ptr<NodeIterator>> inputs_;
  std::vector<Element> parts_;
  JoinedLayout layout_;
  bool ended_ = false;
};

class ZipNode final : public Node {
 public:
  explicit ZipNode(std::vector<NodePtr> inputs) : Node(std::move(inputs)) {}

  std::string name() const override { return "zip()"; }
  Role role() const override { return Role::Combine; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override { return make_node<ZipNode>(std::move(inputs)); }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    std::vector<std::unique_ptr<NodeIterator>> iterators;
    for (size_t i = 0; i < inputs().size(); ++i)
      iterators.push_back(inputs()[i]->iterator(iteration.of_input(i, depth())));
    return std::make_unique<ZipIterator>(std::move(iterators));
  }
  ElementSpec spec() const override {
    std::vector<LeafSpec> leaves;
    std::vector<Element> layouts;
    for (const NodePtr& input : inputs()) {
      ElementSpec part = input->spec();
      if (!part.leaves) return {};
      leaves.insert(leaves.end(), part.leaves->begin(), part.leaves->end());
      layouts.emplace_back().layout = std::move(part.layout);
    }
    return {std::move(leaves), JoinedLayout().of(layouts)};
  }
  Cardinality cardinality() const override {
    Cardinality size = Cardinality::infinite();
    for (const NodePtr& input : inputs()) size = Cardinality::shorter(size, input->cardinality());
    return size;
  }
  std::optional<int64_t> batch_size() const override {
    const auto first = input()->batch_size();
    const bool all_equal =
        std::all_of(inputs().begin(), inputs().end(), [&](const NodePtr& each) { return each->batch_size() == first; });
    return all_equal ? first : std::nullopt;
  }
};

}  // namespace

NodePtr make_zip(std::vector<NodePtr> inputs) {
  LOCKSTEP_CHECK_VALUE(!inputs.empty(), "[zip] there must be at least one dataset");
  separate_caches(inputs);
  return make_node<ZipNode>(std::move(inputs));
}

}  // namespace lockstep::data::detail
