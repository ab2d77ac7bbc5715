#pragma once

#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Keeps every variable once, on one device of the machine, and computes on several: for models whose parameters are
/// too large to have a copy on each device.
///
/// ```
/// set_logical_devices("CPU", 2);
/// CentralStorageStrategy strategy({"CPU:0", "CPU:1"});     // parameters on the CPU
/// auto scope = strategy.scope();
/// auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(100'000'000, 64).sparse(true));
/// auto adagrad = optimizer<torch::optim::Adagrad>(table, 0.1);
/// ```
///
/// Replicas whose device is the parameter device's read the one copy in place. Other devices have a copy of each
/// parameter that is refreshed after every update, except of tables (the weights of `torch::nn::Embedding` and
/// `EmbeddingBag` with `sparse(true)`): those stay where they are, and only the rows that are looked up and updated
/// move. Buffers, such as the statistics of batch normalisation, are each replica's own, and averaged by the optimizer.
class LOCKSTEP_API CentralStorageStrategy : public Strategy {
 public:
  /// Takes the devices of the replicas, in replica order; none means all GPUs, or the first CPU where there is none.
  /// Without a parameter device variables are on the only compute device, or on the CPU where there are several.
  explicit CentralStorageStrategy(const std::vector<std::string>& compute_devices = {},
                                  const std::string& parameter_device = "");
};

}  // namespace lockstep
