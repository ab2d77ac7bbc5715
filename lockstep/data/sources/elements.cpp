#include <algorithm>
#include <mutex>

#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::detail {
namespace {

using Elements = std::shared_ptr<const std::vector<Element>>;

class ElementsIterator final : public NodeIterator {
 public:
  explicit ElementsIterator(Elements elements) : elements_(std::move(elements)) {}

  bool next(Element& element) override {
    if (next_ == elements_->size()) return false;
    element = (*elements_)[next_++];
    own_tensors(element);
    return true;
  }

  int64_t skip(int64_t count) override {
    const auto skipped = std::min<uint64_t>(count, elements_->size() - next_);
    next_ += skipped;
    return static_cast<int64_t>(skipped);
  }

 private:
  Elements elements_;
  size_t next_ = 0;
};

/// What all elements have in common; nothing where they have other parts or keys.
ElementSpec common_spec(const std::vector<Element>& elements) {
  if (elements.empty()) return {};
  ElementSpec spec = ElementSpec::of(elements.front());
  for (const Element& element : elements) {
    if (!same_layout(elements.front(), element)) return {};
    spec = spec.meet(ElementSpec::of(element));
  }
  return spec;
}

class ElementsNode final : public Node {
 public:
  ElementsNode(Elements elements, const char* name) : Node({}), elements_(std::move(elements)), name_(name) {}

  std::string name() const override { return c10::str(name_, "(", elements_->size(), ")"); }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration&) const override {
    return std::make_unique<ElementsIterator>(elements_);
  }
  ElementSpec spec() const override {
    std::call_once(spec_once_, [&] { spec_ = common_spec(*elements_); });
    return spec_;
  }
  Cardinality cardinality() const override { return Cardinality::exactly(static_cast<int64_t>(elements_->size())); }

 private:
  Elements elements_;
  const char* name_;
  mutable std::once_flag spec_once_;
  mutable ElementSpec spec_;
};

}  // namespace

NodePtr make_elements(std::vector<Element> elements, const char* name) {
  for (Element& element : elements) lend_tensors(element);
  return make_node<ElementsNode>(std::make_shared<const std::vector<Element>>(std::move(elements)), name);
}

}  // namespace lockstep::data::detail
