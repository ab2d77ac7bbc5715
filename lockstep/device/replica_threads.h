#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"

namespace lockstep {

/// The replica whose exception `run` rethrew.
struct ReplicaFailure {
  int replica = -1;
  std::exception_ptr exception;
};

/// Returns the failure of the calling thread's last `run`; nothing if it did not throw.
LOCKSTEP_API const std::optional<ReplicaFailure>& last_replica_failure();

namespace detail {

/// The threads that replicas compute on.
///
/// Replica 0 runs on the thread that calls `run`, every other one on a persistent thread of its own: so two replicas on
/// two cores are two threads, and an empty run costs about one message between cores. Each replica has its
/// device, its stream, its share of the cores and its random numbers; grad mode, inference mode, autocast and all other
/// thread-local state of LibTorch are the caller's. What a replica sets of them ends with its run. Casts of weights
/// that autocast has stored are dropped after the run. Backward passes of replicas on GPUs, and of several replicas,
/// run on the replica's thread where LibTorch can do that.
///
/// Calls from several threads are serialised.
class LOCKSTEP_API ReplicaThreads {
 public:
  /// `first_replica` is the number of the first one among all replicas, `num_workers` how many processes there are with
  /// as many replicas, `local_workers` how many of those share this machine's cores.
  explicit ReplicaThreads(const std::vector<c10::Device>& devices, int first_replica = 0, int num_workers = 1,
                          int local_workers = 1);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int size() const;

  /// Number of threads that each replica may use for one operation on the CPU.
  int threads_per_replica() const;

  /// From now on each replica draws the random numbers of its GPU from its generator, which the caller has seeded; from
  /// generators of the run again where there are none. Between runs.
  void use_generators(std::vector<at::Generator> generators);

  /// Calls `body(replica)` for every replica at once and waits for all of them.
  ///
  /// When some throw, the first exception in time is rethrown here, as the same object, after all have ended. A
  /// `c10::Error` gains a line that names the replica; `last_replica_failure` names it for all others.
  /// `begin()` is called first, on the calling thread, when its turn has come. `leave(replica, exception)` is called on
  /// the replica's thread as soon as its body has ended, so that others can be freed from waiting for it; the exception
  /// is null when it returned.
  void run(c10::function_ref<void(int)> body, c10::function_ref<void()> begin,
           c10::function_ref<void(int, std::exception_ptr)> leave);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace lockstep
