#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::comm {

/// A partition of ranks, or of replicas: collectives within it combine the members of each group alone.
///
///     const ReplicaGroups groups({{0, 1}, {2, 3}});
///
/// The members of a group are in ascending order, whatever the order in which they are given. Thread-safe.
class LOCKSTEP_API RankGroups {
 public:
  /// ValueError unless the groups have the numbers from 0 to n - 1, each one once, and none is empty.
  explicit RankGroups(std::vector<std::vector<int>> groups);

  const std::vector<std::vector<int>>& groups() const { return groups_; }
  /// How many ranks all groups together have.
  int num_ranks() const { return static_cast<int>(group_of_.size()); }
  /// The members of the group of a rank.
  const std::vector<int>& members(int rank) const { return groups_[group_of_[static_cast<size_t>(rank)]]; }
  /// The place of a rank among the members of its group.
  int position(int rank) const;
  /// Whether all groups have the same size.
  bool is_uniform() const;

  /// Equal for equal partitions, in all processes.
  uint64_t hash() const;
  bool operator==(const RankGroups& other) const { return groups_ == other.groups_; }

 private:
  std::vector<std::vector<int>> groups_;
  std::vector<size_t> group_of_;
};

/// Numbers of rows, for each tensor and rank.
using RowCounts = std::vector<std::vector<int64_t>>;

/// Prints `{{0, 1}, {2, 3}}`.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const RankGroups& groups);

}  // namespace lockstep::comm

namespace lockstep {

/// A partition of the replicas of a strategy, for `ReplicaContext::within`.
using ReplicaGroups = comm::RankGroups;

}  // namespace lockstep
