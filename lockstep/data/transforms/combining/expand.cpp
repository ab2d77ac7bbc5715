#include "lockstep/data/transforms/combining/expand.h"

#include <exception>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

NodePtr ExpandNode::first_inner() const {
  std::call_once(probed_, [this] {
    if (!input()->is_replayable()) return;
    try {
      Element element;
      if (input()->iterator({})->next(element)) first_ = fn_(element);
    } catch (const std::exception&) {
      first_ = nullptr;
    }
  });
  return first_;
}

ElementSpec ExpandNode::spec() const {
  const NodePtr first = first_inner();
  return first ? first->spec() : ElementSpec{};
}

std::optional<int64_t> ExpandNode::batch_size() const {
  const NodePtr first = first_inner();
  return first ? first->batch_size() : std::nullopt;
}

bool ExpandNode::is_replayable() const {
  if (!UnaryNode::is_replayable()) return false;
  const NodePtr first = first_inner();
  return !first || first->is_replayable();
}

bool ExpandInput::next(Element& element, Iteration& iteration) {
  iteration = iteration_.nested(ordinal_++);  // before the call: an element that throws counts, too
  return input_->next(element);
}

NodePtr ExpandInput::next_dataset(Iteration& iteration) {
  if (!next(element_, iteration)) return nullptr;
  NodePtr dataset = fn_(element_);
  LOCKSTEP_ASSERT(dataset != nullptr);
  return dataset;
}

}  // namespace lockstep::data::detail
