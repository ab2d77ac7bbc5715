#pragma once

#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategies/tpu_strategy.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {

/// A number of replicas, each computed by as many logical devices.
struct MeshSize {
  int replicas;
  int cores;
};

inline constexpr int kNumDevices = 4;

/// Skips the test where no plugin is found, or one with fewer devices: a GPU's has as many as the machine.
#define LOCKSTEP_NEEDS_DEVICES(number)                                                                   \
  LOCKSTEP_NEEDS_PLUGIN();                                                                               \
  if (initialize_tpu_system(nullptr, {.num_cpu_devices = kNumDevices}).num_tpus_per_task() < (number)) { \
    GTEST_SKIP() << "this test needs " << (number) << " devices";                                        \
  }                                                                                                      \
  static_assert(true, "the macro ends with a semicolon")

inline TPUStrategy make_strategy(MeshSize size, const TPUStrategyOptions& options = {}) {
  const tpu::Topology topology = initialize_tpu_system(nullptr, {.num_cpu_devices = kNumDevices});
  return TPUStrategy(nullptr,
                     tpu::DeviceAssignment::build(
                         topology, {.computation_shape = {1, 1, 1, size.cores}, .num_replicas = size.replicas}),
                     options);
}

/// Gives each replica an equal part of a batch, on its device.
inline PerReplica<at::Tensor> split_batch(const Strategy& strategy, const at::Tensor& batch) {
  std::vector<at::Tensor> parts;
  const auto& devices = lockstep::detail::Access::impl(strategy).devices();
  for (const at::Tensor& part : batch.chunk(static_cast<int64_t>(devices.size()))) {
    parts.push_back(part.to(devices[parts.size()].torch_device));
  }
  return PerReplica<at::Tensor>(parts);
}

}  // namespace lockstep::xla::test
