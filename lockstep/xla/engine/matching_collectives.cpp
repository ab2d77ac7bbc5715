#include "lockstep/xla/engine/matching_collectives.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

constexpr const char* kSameCalls = "; make the same collectives in the same order on every replica";

std::string call_at(const XlaDevice& device, size_t i) {
  return i < device.collectives().size() ? device.collectives()[i].call : "no collective";
}

void check_calls(const XlaDevice& first, const XlaDevice& other, size_t replica) {
  const auto& a = first.collectives();
  const auto& b = other.collectives();
  for (size_t i = first.num_closed_calls(); i < std::max(a.size(), b.size()); ++i) {
    const bool is_same = i < a.size() && i < b.size() && a[i].call == b[i].call;
    LOCKSTEP_CHECK_COLLECTIVE(is_same, "[run] all replicas must make the same calls: as collective ", i,
                              " replica 0 makes ", call_at(first, i), ", replica ", replica, " makes ",
                              call_at(other, i), kSameCalls);
  }
}

void check_values(const XlaDevice& first, const XlaDevice& other, size_t replica) {
  const auto& a = first.open_collectives();
  const auto& b = other.open_collectives();
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool is_same = i < a.size() && i < b.size() && a[i]->op == b[i]->op && a[i]->kind == b[i]->kind &&
                         a[i]->dtype == b[i]->dtype && a[i]->shape == b[i]->shape;
    LOCKSTEP_CHECK_COLLECTIVE(is_same,
                              "[run] replicas must take part in collectives with tensors of the same number, dtype and "
                              "shape: replica 0 has ",
                              i < a.size() ? describe(*a[i]) : "none", ", replica ", replica, " has ",
                              i < b.size() ? describe(*b[i]) : "none", "; pad them to one size first");
  }
}

void check_in_time(const XlaDevice& first, const XlaDevice& other, size_t replica) {
  using Seconds = std::chrono::duration<double>;
  for (size_t i = first.num_closed_calls(); i < first.collectives().size(); ++i) {
    const CollectiveNote& a = first.collectives()[i];
    const CollectiveNote& b = other.collectives()[i];
    if (a.timeout.count() == 0 || b.timeout.count() == 0) continue;
    const auto apart = a.made < b.made ? b.made - a.made : a.made - b.made;
    LOCKSTEP_CHECK_COLLECTIVE(apart <= std::min(a.timeout, b.timeout), "[run] replicas made a collective too far ",
                              "apart: ", a.call, " of replica 0 and of replica ", replica, " are ",
                              Seconds(apart).count(),
                              " s apart, timeout_seconds=", Seconds(std::min(a.timeout, b.timeout)).count(),
                              "; give a larger timeout_seconds");
  }
}

std::vector<int64_t> used_collectives(const Trace& trace) {
  std::vector<int64_t> used;
  for (const Node* node : trace.nodes) {
    if (is_collective(*node)) used.push_back(node->ordinal);
  }
  return used;
}

}  // namespace

void check_same_collectives(const std::vector<PendingWork>& works) {
  const XlaDevice& first = works[0].device();
  for (size_t replica = 1; replica < works.size(); ++replica) {
    const XlaDevice& other = works[replica].device();
    check_calls(first, other, replica);
    check_values(first, other, replica);
    check_in_time(first, other, replica);
  }
}

bool use_same_collectives(const std::vector<PendingWork>& works) {
  if (works.size() == 1 || works[0].device().open_collectives().empty()) return true;
  const std::vector<int64_t> first = used_collectives(works[0].trace());
  return std::all_of(works.begin() + 1, works.end(),
                     [&](const PendingWork& work) { return used_collectives(work.trace()) == first; });
}

}  // namespace lockstep::xla
