#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

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
///
/// `torch::manual_seed` inside `run` seeds the generator of the replica that calls it: what it draws afterwards is what
/// one device draws after the same call. LibTorch's default generator keeps its state.
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

/// How often LibTorch's default generator, or that of a replica, was seeded in this process. A step in which the number
/// grows cannot be replayed with other seeds.
LOCKSTEP_API uint64_t num_seedings();

/// Gives the calling thread the random numbers of a replica during its lifetime.
class LOCKSTEP_API ReplicaRandom {
 public:
  /// `on_gpu`, where it is defined, is the replica's generator for its GPU, as the caller has seeded it.
  ReplicaRandom(RunSeed& seed, int replica, at::Generator on_gpu = {});
  ~ReplicaRandom();
  ReplicaRandom(const ReplicaRandom&) = delete;
  ReplicaRandom& operator=(const ReplicaRandom&) = delete;

  /// Returns the replica's generator for `device`, seeded for this run. A CPU generator also serves devices that have
  /// none of their own.
  const at::Generator& generator(c10::Device device);
  /// Seeds the replica's generators: `torch::manual_seed` inside the replica.
  void set_seed(uint64_t seed);
  /// Whether random numbers were drawn that depend on the seed of the run.
  bool used_seed() const { return used_seed_; }

  /// The innermost one of the calling thread, or null.
  static ReplicaRandom* current();

 private:
  RunSeed& seed_;
  int replica_;
  /// What `set_seed` was called with last.
  std::optional<uint64_t> own_seed_;
  bool used_seed_ = false;
  /// For CPUs and for CUDA, where they were asked for.
  std::vector<std::pair<c10::DeviceType, at::Generator>> generators_;
  ReplicaRandom* before_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace lockstep::detail
