#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: the comparison of what replicas hold.
///
/// Replicas that started equal and took the same updates hold the same bits. Each replica hashes its tensors, one pass
/// over memory, and the hashes of all replicas are compared. A difference is a CollectiveError that names the tensors,
/// the replicas, and the last comparison without a difference.
namespace lockstep::detail {

class StrategyImpl;

/// A tensor that every replica holds a copy of.
struct HeldTensor {
  /// What it is: "parameter first.weight".
  std::string name;
  at::Tensor tensor;
};
using HeldTensors = std::vector<HeldTensor>;

/// Returns the name of a parameter, or its number.
std::string parameter_name(const std::vector<std::string>& names, size_t parameter);

/// Adds the parameters of one replica that need gradients, except those that all replicas read from the same memory.
LOCKSTEP_API void add_parameters(const std::vector<ReplicaParameters>& replicas, size_t replica, HeldTensors& held);

/// Throws if a parameter is one tensor for several replicas, which then was not made for them: all would add their
/// gradients to it. Tensors that a strategy stores once are left out.
LOCKSTEP_API void check_own_parameters(const std::vector<ReplicaParameters>& replicas,
                                       const std::vector<std::string>& names);

/// Returns a hash of the bits, dtype and shape of each tensor.
LOCKSTEP_API std::vector<uint64_t> hash_tensors(const HeldTensors& held);

/// After which steps replicas are compared: LOCKSTEP_CHECK_REPLICAS.
class LOCKSTEP_API CheckSchedule {
 public:
  /// Steps 1, 2, 4, 8, ... and every 1,000th.
  CheckSchedule() = default;
  static CheckSchedule from_environment();

  bool is_off() const { return is_off_; }
  /// Whether one of the steps after `compared`, up to `made`, asks for a comparison.
  bool is_due(uint64_t compared, uint64_t made) const;

 private:
  bool is_off_ = false;
  /// Every so many steps; 0 for the default.
  uint64_t interval_ = 0;
};

/// What is said about a difference.
struct Difference {
  /// "[optimizer] replicas must hold equal values after a step"
  std::string rule;
  /// "compared after step 4, equal after step 2"
  std::string when;
  /// What to do.
  std::string causes;
};

/// Throws if hashes differ. `hashes[i]` are those of replica `i`, or of worker `i` where each worker has one entry;
/// `held` are the tensors of one of them.
LOCKSTEP_API void check_equal(const char* member, const HeldTensors& held,
                              const std::vector<std::vector<uint64_t>>& hashes, const Difference& difference);

/// When an optimizer's replicas are compared.
class LOCKSTEP_API ReplicaCheck {
 public:
  ReplicaCheck(const StrategyImpl& strategy, int num_local_replicas);

  /// Outside of replicas: makes the counts of all replicas equal. They differ after a run that failed inside a step.
  void begin_run();
  /// In a replica: counts a step.
  void count_step(int replica) { ++steps_[static_cast<size_t>(replica)].made; }
  /// Outside of replicas: counts a step that all replicas have repeated without calling `count_step`.
  void count_replayed_step();
  /// Whether replicas are to be compared before their first step: an update in chunks would make different parameters
  /// equal. False for traced replicas, whose values are not there yet.
  bool is_due_before_first_step(int replica) const;
  /// Whether a comparison is due. All replicas of all workers have made as many steps, so they agree.
  bool is_due(int replica) const;

  /// Collective over all replicas of all workers: compares.
  void compare(int replica, const HeldTensors& held);
  /// Outside of replicas, which are all of this process: compares.
  void compare_all(const std::vector<HeldTensors>& held);

 private:
  /// Its own cache line for each replica's thread.
  struct alignas(128) Steps {
    uint64_t made = 0;
    uint64_t compared = 0;
  };

  Difference describe(const Steps& steps) const;

  const StrategyImpl& strategy_;
  CheckSchedule schedule_;
  std::vector<Steps> steps_;
};

}  // namespace lockstep::detail
