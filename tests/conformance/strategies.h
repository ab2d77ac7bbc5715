#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

/// The strategies that every test of the conformance suite runs under.
namespace lockstep::conformance {

struct NamedStrategy {
  std::string name;
  int replicas;
  c10::Device device;
  std::function<Strategy()> make;
};

inline std::ostream& operator<<(std::ostream& out, const NamedStrategy& strategy) { return out << strategy.name; }

inline std::vector<std::string> device_names(const std::string& type, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(type + ":" + std::to_string(i));
  return names;
}

inline NamedStrategy mirrored(const std::string& type, int replicas, c10::Device device) {
  return {"Mirrored" + type + std::to_string(replicas), replicas, device, [=] {
            set_logical_devices(type, std::max(replicas, type == "CPU" ? 4 : 2));
            return Strategy(MirroredStrategy(device_names(type, replicas)));
          }};
}

inline NamedStrategy one_device(const std::string& type, c10::Device device) {
  return {"OneDevice" + type, 1, device, [=] { return Strategy(OneDeviceStrategy(type + ":0")); }};
}

/// All strategies on this machine: on CPUs always, on a GPU where there is one (also two logical ones on one card).
inline std::vector<NamedStrategy> all_strategies() {
  std::vector<NamedStrategy> all{one_device("CPU", at::kCPU)};
  for (int replicas = 1; replicas <= 4; ++replicas) all.push_back(mirrored("CPU", replicas, at::kCPU));
  if (!list_physical_devices("GPU").empty()) {
    all.push_back(one_device("GPU", c10::Device(at::kCUDA, 0)));
    all.push_back(mirrored("GPU", 1, c10::Device(at::kCUDA, 0)));
    all.push_back(mirrored("GPU", 2, c10::Device(at::kCUDA, 0)));
  }
  return all;
}

/// Gives each replica its part of a batch: equal parts, the first ones one larger where it does not divide.
inline PerReplica<torch::Tensor> split(const NamedStrategy& strategy, const torch::Tensor& batch) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& part : batch.tensor_split(strategy.replicas)) parts.push_back(part.to(strategy.device));
  return PerReplica<torch::Tensor>(parts);
}

}  // namespace lockstep::conformance
