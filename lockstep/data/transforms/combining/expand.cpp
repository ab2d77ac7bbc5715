#include "lockstep/data/transforms/combining/expand.h"

#include <exception>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

NodePtr ExpandNode::first_inner() const {
  std::call_once(probed_, [this] {
    if (!input()->is_replayable()) return;
    try {
      Element element;
      if (input()->iterator({.is_silent = true})->next(element))
        first_ = FunctionRandom()(0, [&] { return fn_(element); });
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

ExpandInput ExpandNode::expand_input(const Iteration& iteration) const {
  MakeDataset make(fn_, FunctionRandom(depth(), iteration, FunctionStream::OfDatasets));
  return ExpandInput(input()->iterator(iteration), std::move(make), iteration, depth());
}

NodePtr MakeDataset::operator()(ExpandElement& element) {
  NodePtr dataset = random_(element.ordinal, [&] { return fn_(element.element); });
  LOCKSTEP_ASSERT(dataset != nullptr);
  return dataset;
}

bool ExpandInput::next(ExpandElement& element) {
  element.ordinal = ordinal_++;  // before the call: an element that throws counts, too
  element.iteration = iteration_.of_dataset(static_cast<uint64_t>(element.ordinal), depth_);
  return input_->next(element.element);
}

NodePtr ExpandInput::next_dataset(Iteration& iteration) {
  if (!next(element_)) return nullptr;
  iteration = element_.iteration;
  return make_(element_);
}

}  // namespace lockstep::data::detail
