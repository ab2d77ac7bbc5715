#include "lockstep/comm/rank_groups.h"

#include <algorithm>
#include <string>

#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::comm {
namespace {

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Throws ValueError unless every number from 0 to the number of members is there once.
void check_partition(const std::vector<std::vector<int>>& groups) {
  std::vector<int> all;
  for (const auto& group : groups) {
    LOCKSTEP_CHECK_VALUE(!group.empty(), "[ReplicaGroups] a group must have members: groups=", groups.size(),
                         "; leave empty groups out");
    all.insert(all.end(), group.begin(), group.end());
  }
  LOCKSTEP_CHECK_VALUE(!all.empty(), "[ReplicaGroups] there must be a group: groups=0; give the replicas of each");
  std::sort(all.begin(), all.end());
  LOCKSTEP_CHECK_VALUE(all[0] >= 0, "[ReplicaGroups] replicas are numbered from 0: replica=", all[0]);
  std::vector<int> missing, twice;
  int next = 0;
  for (const int number : all) {
    if (number < next) {
      if (twice.empty() || twice.back() != number) twice.push_back(number);
      continue;
    }
    while (next < number && missing.size() < 16) missing.push_back(next++);
    next = number + 1;
  }
  LOCKSTEP_CHECK_VALUE(
      missing.empty() && twice.empty(), "[ReplicaGroups] each replica must be in exactly one group: ",
      missing.empty() ? "" : c10::str("missing=", joined(missing)), missing.empty() || twice.empty() ? "" : ", ",
      twice.empty() ? "" : c10::str("twice=", joined(twice)), "; give every replica of the strategy once");
}

}  // namespace

RankGroups::RankGroups(std::vector<std::vector<int>> groups) : groups_(std::move(groups)) {
  check_partition(groups_);
  size_t count = 0;
  for (auto& group : groups_) {
    std::sort(group.begin(), group.end());
    count += group.size();
  }
  std::sort(groups_.begin(), groups_.end());
  group_of_.resize(count);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int rank : groups_[g]) group_of_[static_cast<size_t>(rank)] = g;
  }
}

int RankGroups::position(int rank) const {
  const auto& all = members(rank);
  return static_cast<int>(std::lower_bound(all.begin(), all.end(), rank) - all.begin());
}

bool RankGroups::is_uniform() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [&](const auto& group) { return group.size() == groups_[0].size(); });
}

uint64_t RankGroups::hash() const {
  uint64_t hash = groups_.size();
  for (const size_t group : group_of_) hash = mix_hash(hash, static_cast<uint64_t>(group));
  return hash;
}

std::ostream& operator<<(std::ostream& out, const RankGroups& groups) {
  out << '{';
  const char* separator = "";
  for (const auto& group : groups.groups()) {
    out << separator << '{' << joined(group) << '}';
    separator = ", ";
  }
  return out << '}';
}

}  // namespace lockstep::comm
