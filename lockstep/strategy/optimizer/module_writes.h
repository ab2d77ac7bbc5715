#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/optimizer/replica_check.h"

/// Internal: writes to a module's parameters inside `run` by something else than lockstep's optimizers.
///
/// An optimizer of torch::optim trains each replica by itself, and `torch::nn::init` draws other numbers on each. A
/// decay or a clamp that every replica computes alike is allowed. So parameters that autograd saw written are compared
/// at the end of the run: a difference is an error, and equal values a warning, once for each module. Autograd does not
/// see writes through `tensor.data()`, among them those of torch::optim::SGD. Parameters that no optimizer of lockstep
/// updated are therefore compared after runs 1, 2, 4, 8, ... as well. Parameters without `requires_grad` may differ.
namespace lockstep::detail {

class StrategyImpl;

class ModuleWrites {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// `modules` are those of the local replicas. All workers make the same ones in the same order.
  /// `number` is that of the module under the strategy, equal on all workers.
  ModuleWrites(StrategyImpl& strategy, const Modules& modules, uint64_t number);

  /// On the thread of each replica, around its function.
  void begin_replica(int replica);
  void end_replica(int replica);
  /// Outside of replicas, when all values are there.
  void check_replicas();

 private:
  struct Parameter {
    at::Tensor tensor;
    ParameterWrites::Count by_optimizers;
    /// At the start of the run: all writes, and those of optimizers.
    uint32_t before = 0;
    uint32_t by_optimizers_before = 0;
  };
  /// Its own cache line for each replica's thread.
  struct alignas(128) Replica {
    std::vector<Parameter> parameters;
    /// Those that something else wrote.
    std::vector<size_t> written;
  };

  std::vector<size_t> take_written();
  std::vector<size_t> not_updated() const;
  void compare(const std::vector<size_t>& parameters);
  Difference describe(const char* members) const;
  void compare_with_other_workers(const HeldTensors& held, const std::vector<uint64_t>& hashes);
  std::string names_of(const std::vector<size_t>& written) const;

  StrategyImpl& strategy_;
  const uint64_t number_;
  CheckSchedule schedule_;
  std::vector<std::string> names_;
  std::vector<Replica> replicas_;
  /// How many there were, and how many when they were last compared: in this process, and with other workers.
  struct Progress {
    uint64_t made = 0;
    uint64_t compared = 0;
    uint64_t with_others = 0;
  };
  Progress runs_;
  /// Runs in which something else wrote parameters.
  Progress writes_;
  uint64_t last_equal_run_ = 0;
  bool has_warned_ = false;
  /// Whether all other workers have come to the last comparison in time.
  bool others_come_ = true;
};

}  // namespace lockstep::detail
