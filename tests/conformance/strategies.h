#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

/// The strategies that every test of the conformance suite runs under.
namespace lockstep::conformance {

struct NamedStrategy {
  std::string name;
  /// Number of replicas of all workers.
  int replicas;
  /// The device of a replica's tensors; without an index: the current device in the replica.
  c10::Device device;
  std::function<Strategy()> make;
  /// Number of replicas of this process, and the index of the first one.
  int local = replicas;
  int first = 0;
  /// Whether parameters are stored once for all replicas, and all of them read that memory itself.
  bool sees_one_copy = false;
  /// Whether parameters are stored on the CPU, for any device of the replicas.
  bool stores_on_cpu = false;

  /// The devices of the replicas, set when the strategy is made; empty: all on `device`.
  std::shared_ptr<std::vector<c10::Device>> devices = std::make_shared<std::vector<c10::Device>>();

  bool has_workers() const { return local < replicas; }
  bool is_traced() const { return device.type() == c10::DeviceType::XLA; }
  c10::Device device_of(int replica) const { return devices->empty() ? device : devices->at(replica); }
  bool is_on_one_device() const {
    return std::all_of(devices->begin(), devices->end(), [&](c10::Device each) { return each == devices->front(); });
  }
  bool is_on_device(const torch::Tensor& tensor) const {
    return tensor.device().type() == device.type() && (!device.has_index() || tensor.device() == device);
  }
};

inline std::ostream& operator<<(std::ostream& out, const NamedStrategy& strategy) { return out << strategy.name; }

/// Names the cases of a suite by their strategies.
inline std::string strategy_name(const ::testing::TestParamInfo<NamedStrategy>& info) { return info.param.name; }

/// Makes four logical devices on each physical one and names `count` of them: on as many physical ones as there are,
/// from number `first` on, or all on the first one.
inline std::vector<std::string> name_devices(const std::string& type, int count, bool spread, int first = 0) {
  constexpr int kEach = 4;
  const auto physical = static_cast<int>(list_physical_devices(type).size());
  set_logical_devices_per_physical(type, std::vector<int>(static_cast<size_t>(physical), kEach));
  const int used = spread ? physical : 1;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back(type + ":" + std::to_string((first + i) % used * kEach + i / used));
  }
  return names;
}

inline std::vector<std::string> spread_devices(const std::string& type, int count, int first = 0) {
  return name_devices(type, count, /*spread=*/true, first);
}

/// The device of replicas on GPUs: without an index where they are on several cards.
inline c10::Device gpu_of_replicas() {
  return list_physical_devices("GPU").size() > 1 ? c10::Device(at::kCUDA) : c10::Device(at::kCUDA, 0);
}

inline std::vector<c10::Device> devices_of(const Strategy& strategy) {
  std::vector<c10::Device> devices;
  for (const LogicalDevice& device : detail::Access::impl(strategy).devices()) devices.push_back(device.torch_device);
  return devices;
}

inline NamedStrategy mirrored(const std::string& type, int replicas, c10::Device device) {
  NamedStrategy named{"Mirrored" + type + std::to_string(replicas), replicas, device, nullptr};
  named.make = [=, devices = named.devices] {
    Strategy made = MirroredStrategy(spread_devices(type, replicas));
    *devices = devices_of(made);
    return made;
  };
  return named;
}

/// Parameters are on the first device of type `parameters`, and all replicas on one physical device: others would read
/// a copy.
inline NamedStrategy central(const std::string& type, int replicas, c10::Device device, const std::string& parameters) {
  NamedStrategy named{"Central" + type + std::to_string(replicas) + (parameters == type ? "" : "From" + parameters),
                      replicas, device, nullptr};
  named.make = [=, devices = named.devices] {
    Strategy made = CentralStorageStrategy(name_devices(type, replicas, /*spread=*/false), parameters + ":0");
    *devices = devices_of(made);
    return made;
  };
  named.sees_one_copy = parameters == type;
  named.stores_on_cpu = parameters == "CPU";
  return named;
}

/// On XLA's devices: `replicas` of them, each of `cores` logical devices.
inline NamedStrategy tpu_strategy(int replicas, int cores) {
  const std::string name = c10::str("TPU", replicas, cores > 1 ? c10::str("x", cores) : "");
  NamedStrategy named{name, replicas, c10::Device(c10::DeviceType::XLA), nullptr};
  named.make = [=, devices = named.devices] {
    const auto topology = initialize_tpu_system(nullptr, {.num_cpu_devices = 4});
    TPUStrategy made(nullptr, tpu::DeviceAssignment::build(
                                  topology, {.computation_shape = {1, 1, 1, cores}, .num_replicas = replicas}));
    *devices = devices_of(made);
    return Strategy(made);
  };
  return named;
}

inline NamedStrategy one_device(const std::string& type, c10::Device device) {
  return {"OneDevice" + type, 1, device, [=] { return Strategy(OneDeviceStrategy(type + ":0")); }};
}

/// The strategies of several workers that a launcher started: with one and two replicas each, on CPUs and on a GPU,
/// which several workers may share.
inline std::vector<NamedStrategy> worker_strategies(const WorkerPlace& place) {
  std::vector<NamedStrategy> all;
  if (!list_physical_devices("GPU").empty()) {
    for (int local = 1; local <= 2; ++local) {
      all.push_back({c10::str("Workers", place.num_workers, "x", local, "GPU"), place.num_workers * local,
                     gpu_of_replicas(),
                     [=, first = place.index * local] {
                       return Strategy(MultiWorkerMirroredStrategy(nullptr, {}, spread_devices("GPU", local, first)));
                     },
                     local, place.index * local});
    }
  }
  for (int local = 1; local <= 2; ++local) {
    all.push_back({c10::str("Workers", place.num_workers, "x", local), place.num_workers * local, at::kCPU,
                   [=] { return Strategy(MultiWorkerMirroredStrategy(nullptr, {}, spread_devices("CPU", local))); },
                   local, place.index * local});
  }
  return all;
}

/// Numbers of replicas and of logical devices of each, for a strategy on XLA's devices.
using TpuSize = std::pair<int, int>;
constexpr TpuSize kTpuSizes[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}};

/// Those of `wanted` that this machine has. Programs take a second to compile, so there is only one under a sanitizer,
/// which does not see inside them.
inline std::vector<TpuSize> tpu_sizes([[maybe_unused]] at::ArrayRef<TpuSize> wanted) {
  if (!has_tpu_plugin()) return {};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return {{2, 1}};
#else
  std::vector<TpuSize> sizes;
  const int devices = initialize_tpu_system(nullptr, {.num_cpu_devices = 4}).num_tpus_per_task();
  for (const auto& [replicas, cores] : wanted) {
    if (replicas * cores <= devices) sizes.emplace_back(replicas, cores);
  }
  return sizes;
#endif
}

/// All strategies on this machine: on CPUs always, on a GPU if there is one (also with several logical GPUs on it), on
/// XLA's devices those of the given sizes. Suites whose programs take long to compile name two sizes; together the
/// suites of a topic have all.
inline std::vector<NamedStrategy> all_strategies(at::ArrayRef<TpuSize> sizes = kTpuSizes) {
  const auto place = worker_place(*resolve_cluster());
  if (place && place->num_workers > 1) return worker_strategies(*place);
  std::vector<NamedStrategy> all{one_device("CPU", at::kCPU)};
  for (int replicas = 1; replicas <= 4; ++replicas) all.push_back(mirrored("CPU", replicas, at::kCPU));
  for (int replicas = 1; replicas <= 3; ++replicas) all.push_back(central("CPU", replicas, at::kCPU, "CPU"));
  for (const auto& [replicas, cores] : tpu_sizes(sizes)) all.push_back(tpu_strategy(replicas, cores));
  if (!list_physical_devices("GPU").empty()) {
    all.push_back(one_device("GPU", c10::Device(at::kCUDA, 0)));
    for (int replicas = 1; replicas <= 4; ++replicas) {
      all.push_back(mirrored("GPU", replicas, gpu_of_replicas()));
    }
    for (int replicas = 1; replicas <= 2; ++replicas) {
      all.push_back(central("GPU", replicas, c10::Device(at::kCUDA, 0), "CPU"));
      all.push_back(central("GPU", replicas, c10::Device(at::kCUDA, 0), "GPU"));
    }
  }
  return all;
}

/// Returns the values of this process, out of a value for each replica.
inline PerReplica<torch::Tensor> local_values(const NamedStrategy& strategy, const std::vector<torch::Tensor>& all) {
  std::vector<torch::Tensor> here;
  for (int i = 0; i < strategy.local; ++i) here.push_back(all.at(strategy.first + i).to(strategy.device_of(i)));
  return PerReplica<torch::Tensor>(here);
}

/// Concatenates the values of all replicas. A strategy that compiles gathers only equal shapes, so batches that may
/// differ are concatenated here.
inline torch::Tensor all_rows(const NamedStrategy& named, const Strategy& strategy,
                              const PerReplica<torch::Tensor>& value) {
  if (!named.is_traced()) return strategy.gather(value, 0).cpu();
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& part : strategy.local_results(value)) parts.push_back(part.cpu());
  return torch::cat(parts);
}

/// Gives each replica its part of a batch: equal parts; the first ones take the remainder.
inline PerReplica<torch::Tensor> split(const NamedStrategy& strategy, const torch::Tensor& batch) {
  return local_values(strategy, batch.tensor_split(strategy.replicas));
}

}  // namespace lockstep::conformance
