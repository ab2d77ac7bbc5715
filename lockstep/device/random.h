#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lockstep/api.h"

/// Random numbers of replicas.
///
/// LibTorch has one generator for all threads of a device, so dropout in two replicas would depend on timing.
/// Inside `run` every operation that draws random numbers therefore gets the replica's own generator. Its seed comes
/// from (one number drawn from LibTorch's default generator for each `run` that uses randomness, replica id): the
/// streams follow `torch::manual_seed`, differ between replicas and runs, and do not depend on timing; and the whole
/// random state of a training is that of the default generator.
namespace lockstep::detail {

/// Draws 64 bits from a CPU generator. Thread-safe.
LOCKSTEP_API uint64_t draw_bits(const at::Generator& generator);

/// The seed of one `run`: drawn from the default generator when the first replica needs it.
class LOCKSTEP_API RunSeed {
 public:
  RunSeed() = default;
  /// A fixed seed.
  explicit RunSeed(uint64_t seed) : drawn_(true), seed_(seed) {}

  uint64_t get();
  /// Resets the seed: the next `get` draws a new one.
  void reset();

 private:
  std::mutex mutex_;
  std::atomic<bool> drawn_{false};
  uint64_t seed_ = 0;
};

/// Returns a seed that differs for every (seed, replica).
LOCKSTEP_API uint64_t replica_seed(uint64_t run_seed, int replica);

/// Registers kernels in LibTorch's dispatcher that use the replica's generator. Called once per process, before the
/// first replica runs.
LOCKSTEP_API void install_replica_random();

/// Gives the calling thread the random numbers of a replica during its lifetime.
class LOCKSTEP_API ReplicaRandom {
 public:
  ReplicaRandom(RunSeed& seed, int replica);
  ~ReplicaRandom();
  ReplicaRandom(const ReplicaRandom&) = delete;
  ReplicaRandom& operator=(const ReplicaRandom&) = delete;

  /// Returns the replica's generator for `device`, seeded for this run.
  const at::Generator& generator(c10::Device device);

 private:
  RunSeed& seed_;
  int replica_;
  std::optional<at::Generator> generator_;
  /// The device of `generator_`; a CPU generator also seeds devices that have none of their own.
  c10::DeviceType generator_for_ = c10::DeviceType::CPU;
  ReplicaRandom* before_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace lockstep::detail
