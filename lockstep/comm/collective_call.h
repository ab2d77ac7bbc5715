#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <typeinfo>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/rank_groups.h"

namespace lockstep::comm {

/// For as long as it lives, collectives of this thread only match those of ranks with the same hash of changes that a
/// program made outside of runs, such as loaded weights; 0 for none.
class LOCKSTEP_API OutsideChangesScope {
 public:
  explicit OutsideChangesScope(uint64_t hash);
  ~OutsideChangesScope();
  OutsideChangesScope(const OutsideChangesScope&) = delete;
  OutsideChangesScope& operator=(const OutsideChangesScope&) = delete;

  /// The hash of the calling thread.
  static uint64_t current();

 private:
  uint64_t outer_;
};

/// The object of the program whose collectives a thread makes, such as an optimizer: ranks make them for the same one.
struct LOCKSTEP_API CollectiveOwner {
  /// "optimizer", "variable"; a string literal. Empty where a call belongs to no object.
  std::string_view kind{};
  /// Counts the objects of this kind in the order in which they were made under the strategy. It is the same on all
  /// replicas and workers.
  uint64_t number = 0;
  /// What the user calls, for example "clip_grad_norm". A string literal.
  std::string_view operation{};

  /// The owner of the calling thread's collectives, as its innermost CollectiveOwnerScope says.
  static CollectiveOwner current();
};

/// Prints `step of optimizer 1`.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const CollectiveOwner& owner);

/// For as long as it lives, collectives of this thread only match those of ranks with an equal owner.
class LOCKSTEP_API CollectiveOwnerScope {
 public:
  explicit CollectiveOwnerScope(const CollectiveOwner& owner);
  ~CollectiveOwnerScope();
  CollectiveOwnerScope(const CollectiveOwnerScope&) = delete;
  CollectiveOwnerScope& operator=(const CollectiveOwnerScope&) = delete;

 private:
  CollectiveOwner outer_;
};

/// One collective as one rank calls it: what ranks compare with each other, and what the recorder stores.
///
/// It lives on the calling rank's stack until the collective ends, so other ranks may read what it refers to.
struct LOCKSTEP_API CollectiveCall {
  /// The public operation, for example "all_reduce". A string literal.
  std::string_view operation;
  /// What the rank reads, and what it writes; the same list when it works in place.
  at::ArrayRef<at::Tensor> inputs{};
  at::ArrayRef<at::Tensor> outputs{};
  ReduceOp::Kind reduce_op = ReduceOp::Sum;
  /// The rank that holds the result or the source, or -1. Within groups: its position in each group.
  int root = -1;
  /// The dimension that may differ in size between ranks, or -1 where shapes must be equal.
  int64_t free_dimension = -1;
  /// Other data that the ranks exchange, and its type; only the type is compared.
  void* payload = nullptr;
  const std::type_info* payload_type = nullptr;
  /// Whether only the inputs of the root are read.
  bool only_root_is_read = false;
  /// The groups whose members alone are combined; null for one group of all ranks.
  const RankGroups* groups = nullptr;
  /// Where it is not 0, the size of the rank's group: the member number i % `readers` alone reads input number i.
  size_t readers = 0;
  /// What is compared and described in place of the inputs, where `readers` is not 0.
  at::ArrayRef<at::Tensor> divided{};
  /// What carries the call where it is not the group's own exchange: "NCCL". A string literal.
  std::string_view carrier{};
  /// Where the user called it; not compared.
  CallSite site = CallSite::current();
  /// See OutsideChangesScope.
  uint64_t outside_changes = OutsideChangesScope::current();
  /// See CollectiveOwnerScope.
  CollectiveOwner owner = CollectiveOwner::current();

  /// What the user gave.
  at::ArrayRef<at::Tensor> given() const { return readers > 0 ? divided : inputs; }
  /// Whether the inputs of a rank are read by others.
  bool is_read(int rank) const { return !only_root_is_read || rank == root_for(rank); }
  /// The root of the group of a rank.
  int root_for(int rank) const;
  /// Whether a rank `reader` reads input number `index` of the rank `from`. `from` is read.
  bool reads(int reader, int from, size_t index) const;
  /// How many inputs a rank of a group of `num_ranks` has, where this rank has `own`.
  size_t num_inputs(int rank, int num_ranks, size_t own) const;

  /// Hashes all that must be equal on every rank.
  uint64_t fingerprint() const;
  /// Returns a description: `all_reduce(SUM, float32[3, 4], 2 tensors) at train.cpp:57`, and for an
  /// owner `optimizer step(step of optimizer 1, float32[3, 4]) at train.cpp:58`.
  std::string describe() const;
};

/// Writes how descriptions of a call begin: `all_reduce(step of optimizer 1, SUM`. Returns what separates the next
/// part.
const char* begin_description(std::ostream& out, std::string_view operation, const CollectiveOwner& owner,
                              ReduceOp::Kind reduce_op);

}  // namespace lockstep::comm
