#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Stores every variable once, on one device of the machine, and computes on several: for models whose parameters are
/// too large for a copy on each device.
///
/// ```
/// set_logical_devices("CPU", 2);
/// CentralStorageStrategy strategy({"CPU:0", "CPU:1"});     // parameters on the CPU
/// auto scope = strategy.scope();
/// auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(100'000'000, 64).sparse(true));
/// auto adagrad = optimizer<torch::optim::Adagrad>(table, 0.1);
/// ```
///
/// Replicas on the parameter device read the stored copy in place. Other devices have a copy of each parameter that is
/// refreshed after every update. Tables (the weights of `torch::nn::Embedding` and `EmbeddingBag` with `sparse(true)`)
/// are not copied: only the rows that are looked up or updated are transferred. Buffers, such as the statistics of
/// batch normalisation, are each replica's own, and are brought together as under MirroredStrategy. Replicas must not
/// write parameters inside `run`.
class LOCKSTEP_API CentralStorageStrategy : public Strategy {
 public:
  /// Takes the devices of the replicas, in replica order; none means all GPUs, or the first CPU if there is no GPU. The
  /// default parameter device is the only compute device, or the CPU if there are several.
  explicit CentralStorageStrategy(const std::vector<std::string>& compute_devices = {},
                                  const std::string& parameter_device = "");
  /// For lists in braces, empty ones included.
  explicit CentralStorageStrategy(std::initializer_list<std::string> compute_devices,
                                  const std::string& parameter_device = "")
      : CentralStorageStrategy(std::vector<std::string>(compute_devices), parameter_device) {}
};

}  // namespace lockstep
