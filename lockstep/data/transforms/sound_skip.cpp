#include "lockstep/data/transforms/sound_skip.h"

#include <algorithm>

namespace lockstep::data::detail {
namespace {

thread_local Skipped skipped_of_thread = Skipped::Unknown;

/// Whether all elements have the same parts, shapes and dtypes, so that each fits into a batch of the others.
bool has_one_form(const ElementSpec& spec) {
  return spec.leaves && std::all_of(spec.leaves->begin(), spec.leaves->end(), [](const LeafSpec& leaf) {
           return leaf.kind != LeafSpec::Kind::Tensor || (leaf.dtype && leaf.shape.is_static());
         });
}

}  // namespace

SkipScope::SkipScope(Skipped skipped) : before_(skipped_of_thread) { skipped_of_thread = skipped; }
SkipScope::~SkipScope() { skipped_of_thread = before_; }
Skipped SkipScope::current() { return skipped_of_thread; }

bool may_fail(const Node& node) {
  switch (node.role()) {
    case Role::Source:
      return !node.is_replayable() || !node.cardinality().is_known() || !has_one_form(node.spec());
    case Role::Shuffle:
    case Role::Shard:
    case Role::Trailing:
      return may_fail(*node.input());
    default:
      return true;
  }
}

bool errors_change_size(const Node& node) {
  if (node.inputs().empty()) return false;
  if (node.uniform_batch_size() && may_fail(*node.input())) return true;
  return std::any_of(node.inputs().begin(), node.inputs().end(),
                     [](const NodePtr& input) { return errors_change_size(*input); });
}

std::optional<int64_t> size_to_skip(const Node& node) {
  if (SkipScope::current() != Skipped::Sound && errors_change_size(node)) return std::nullopt;
  return node.cardinality().size();
}

}  // namespace lockstep::data::detail
