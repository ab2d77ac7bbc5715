#include "lockstep/comm/views/membership.h"

#include <algorithm>

namespace lockstep::comm::views {

void Membership::start(uint64_t worker, Time now, uint64_t machine) {
  workers_[worker] = {.machine = machine, .deadline = takes_newcomers() ? now + options_.start_time : now};
}

void Membership::ask(uint64_t worker, const std::string& address, std::optional<uint64_t> silent, Time now,
                     AskReason reason) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  Worker& one = found->second;
  if (!one.asks) one.asked = now;
  one.asks = true;
  one.reason = reason;
  one.address = address;
  one.deadline = is_in_view(worker) || takes_newcomers() ? Time::max() : now;
  if (!is_in_view(worker)) return;
  urge_members(now + options_.grace);
  if (!silent || !is_in_view(*silent)) return;
  const auto blamed = workers_.find(*silent);
  if (blamed != workers_.end() && !blamed->second.asks) {
    blamed->second.deadline = std::min(blamed->second.deadline, now + options_.grace_of_silent);
  }
}

void Membership::end(uint64_t worker, bool finished, Time now) {
  if (workers_.erase(worker) == 0) return;
  has_finished_ = has_finished_ || finished;
  for (auto& [other, state] : workers_) {
    if (!takes_newcomers() && !is_in_view(other)) state.deadline = std::min(state.deadline, now);
  }
  // Members that have finished do not disturb the others, who finish, too.
  if (is_in_view(worker) && !finished) urge_members(now + options_.grace);
}

void Membership::urge_members(Time deadline) {
  for (const ViewMember& member : view_.members) {
    const auto found = workers_.find(member.worker);
    if (found == workers_.end() || found->second.asks) continue;
    found->second.deadline = std::min(found->second.deadline, deadline);
  }
}

bool Membership::is_in_view(uint64_t worker) const {
  return std::any_of(view_.members.begin(), view_.members.end(),
                     [&](const ViewMember& member) { return member.worker == worker; });
}

bool Membership::asks(uint64_t worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.asks;
}

bool Membership::has_survivors() const {
  return std::any_of(view_.members.begin(), view_.members.end(),
                     [&](const ViewMember& member) { return workers_.contains(member.worker); });
}

std::optional<View> Membership::issue() {
  const bool waits_for_all = !has_survivors();
  bool is_on_disk = false;
  View next{view_.number + 1};
  for (const ViewMember& member : view_.members) {
    const auto found = workers_.find(member.worker);
    if (found == workers_.end()) continue;
    if (!found->second.asks) return std::nullopt;
    is_on_disk = is_on_disk || found->second.reason == AskReason::Saved;
    next.members.push_back({member.worker, found->second.address});
  }
  int starting = 0;
  std::vector<ViewMember> later;
  for (const auto& [worker, state] : workers_) {
    if (is_in_view(worker) || !takes_newcomers()) continue;
    const bool must_wait = !is_on_disk && needs_disk(state);
    if (state.asks) (must_wait ? later : next.members).push_back({worker, state.address});
    if (!state.asks && waits_for_all) return std::nullopt;
    if (!state.asks && !must_wait) ++starting;
  }
  if (static_cast<int>(next.members.size()) + starting < least()) {
    next.members.insert(next.members.end(), later.begin(), later.end());
  }
  if (next.members.empty() || static_cast<int>(next.members.size()) < least()) return std::nullopt;
  view_ = std::move(next);
  machines_.clear();
  for (const ViewMember& member : view_.members) {
    Worker& worker = workers_[member.worker];
    worker.asks = false;
    machines_.insert(worker.machine);
  }
  return view_;
}

bool Membership::change_is_pending(Time now) const {
  bool is_asked = false;
  bool is_starting = false;
  Time first = Time::max();
  for (const auto& [worker, state] : workers_) {
    if (is_in_view(worker)) continue;
    is_asked = is_asked || state.asks;
    is_starting = is_starting || !state.asks;
    if (state.asks) first = std::min(first, state.asked);
  }
  return takes_newcomers() && is_asked && has_survivors() && (!is_starting || now >= first + options_.settle_time);
}

bool Membership::newcomers_need_disk() const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.asks && !is_in_view(entry.first) && needs_disk(entry.second);
  });
}

std::vector<uint64_t> Membership::overdue(Time now) const {
  std::vector<uint64_t> found;
  for (const auto& [worker, state] : workers_) {
    if (now >= state.deadline) found.push_back(worker);
  }
  return found;
}

Time Membership::next_deadline(Time now) const {
  Time next = Time::max();
  for (const auto& [worker, state] : workers_) {
    if (state.deadline > now) next = std::min(next, state.deadline);
    const bool settles = state.asks && !is_in_view(worker) && state.asked + options_.settle_time > now;
    if (settles) next = std::min(next, state.asked + options_.settle_time);
  }
  return next;
}

}  // namespace lockstep::comm::views
