#include "lockstep/train/checkpoint.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/state/random_state.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace detail {

struct CheckpointObjects {
  std::vector<Checkpoint::Entry> entries;
  std::shared_ptr<StrategyImpl> strategy;
};

}  // namespace detail

namespace {

constexpr const char* kRandomName = "random";

void check_entry_names(const std::vector<Checkpoint::Entry>& entries) {
  std::set<std::string> names;
  for (const Checkpoint::Entry& entry : entries) {
    LOCKSTEP_CHECK_VALUE(!entry.name.empty() && entry.name.find('.') == std::string::npos,
                         "[Checkpoint] an object must have a name without a point: name=\"", entry.name, "\"");
    LOCKSTEP_CHECK_VALUE(entry.name != kRandomName,
                         "[Checkpoint] the name \"random\" is taken by the random numbers; choose another one");
    LOCKSTEP_CHECK_VALUE(names.insert(entry.name).second,
                         "[Checkpoint] each object must have a name of its own: name=", entry.name, " is there twice");
    LOCKSTEP_CHECK_VALUE(entry.object != nullptr, "[Checkpoint] the object must not be null: name=", entry.name);
  }
}

std::shared_ptr<detail::StrategyImpl> common_strategy(const std::vector<Checkpoint::Entry>& entries) {
  std::shared_ptr<detail::StrategyImpl> common;
  std::string first;
  for (const Checkpoint::Entry& entry : entries) {
    const std::shared_ptr<detail::StrategyImpl> own = entry.object->strategy();
    if (own == nullptr) continue;
    if (common == nullptr) first = entry.name;
    LOCKSTEP_CHECK_VALUE(common == nullptr || common == own,
                         "[Checkpoint] all objects must be of one strategy: ", first, " and ", entry.name,
                         " were made under different ones");
    common = own;
  }
  return common != nullptr ? common : detail::Access::shared_impl(get_strategy());
}

}  // namespace

Checkpoint::Checkpoint(std::vector<Entry> entries) : objects_(std::make_shared<detail::CheckpointObjects>()) {
  check_entry_names(entries);
  objects_->strategy = common_strategy(entries);
  entries.emplace_back(kRandomName, detail::random_state_object(objects_->strategy));
  objects_->entries = std::move(entries);
}

State Checkpoint::state() const {
  State all;
  for (const detail::ObjectState& object : collect()) all.add(object.name, object.state);
  return all;
}

LoadResult Checkpoint::load_state(const State& state, const LoadOptions& options) {
  detail::LoadPlan plan(state);
  plan_load(plan);
  return plan.execute(options);
}

const std::shared_ptr<detail::StrategyImpl>& Checkpoint::strategy() const { return objects_->strategy; }

std::vector<detail::ObjectState> Checkpoint::collect() const {
  std::vector<detail::ObjectState> all;
  for (const Entry& entry : objects_->entries) {
    all.push_back({entry.name, entry.object->state(), entry.object->strategy() != nullptr});
  }
  return all;
}

void Checkpoint::plan_load(detail::LoadPlan& plan) const {
  std::vector<const Entry*> ordered;
  for (const Entry& entry : objects_->entries) ordered.push_back(&entry);
  std::stable_sort(ordered.begin(), ordered.end(), [](const Entry* left, const Entry* right) {
    return left->object->load_order() < right->object->load_order();
  });
  for (const Entry* entry : ordered) entry->object->plan_load(plan.all().below(entry->name));
}

}  // namespace lockstep
