#pragma once

#include "lockstep/strategy/tpu_strategy.h"

namespace lockstep::xla::test {

/// A number of replicas, each computed by as many logical devices.
struct MeshSize {
  int replicas;
  int cores;
};

inline constexpr int kNumDevices = 4;

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
  const auto& devices = strategy.shared_impl()->devices();
  for (const at::Tensor& part : batch.chunk(static_cast<int64_t>(devices.size()))) {
    parts.push_back(part.to(devices[parts.size()].torch_device));
  }
  return PerReplica<at::Tensor>(parts);
}

}  // namespace lockstep::xla::test
