#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/optimizer/replica_check.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {

class StrategyImpl;

/// Notices what replicas write inside `run` to parameters that are stored once. Each replica would write the same
/// memory, or a copy of it that the next update overwrites.
///
/// A write by the first replica alone is one write where it reads the stored memory: a merge function may make it.
/// Writes through `data()` are not counted by LibTorch: the stored values are hashed around some runs (CheckSchedule).
class StoredParameterWrites {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// `central` has the parameters in the order of `distinct(named_parameters())`; it must outlive this.
  StoredParameterWrites(const StrategyImpl& strategy, const Modules& modules,
                        const std::vector<CentralTensor>& central);

  void begin_run();
  /// Around what lockstep itself writes, on the replica's thread.
  void before_update(int replica) { find_writes(replica); }
  void after_update(int replica) { take(replica); }
  void end_of_replica(int replica) { find_writes(replica); }
  /// Describes the first parameter that replicas have written in this run; empty if there is none.
  std::string described() const;
  /// After a run: parameters that replicas gave other memory are the stored ones again.
  void restore_memory() const;

 private:
  struct Replica {
    std::vector<at::Tensor> parameters;
    std::vector<TensorMark> marks;
    std::vector<char> written;
    /// How often optimizers have written each parameter, and how often when its mark was taken.
    std::vector<ParameterWrites::Count> by_optimizers;
    std::vector<uint32_t> by_optimizers_before;
  };

  void find_writes(int replica);
  void take(int replica);
  bool is_allowed(size_t parameter) const;
  std::vector<uint64_t> hash_stored() const;
  std::string described_silent_write() const;

  const StrategyImpl& strategy_;
  const std::vector<CentralTensor>& central_;
  std::vector<std::string> names_;
  std::vector<Replica> replicas_;
  /// In which runs the stored values are hashed.
  CheckSchedule schedule_ = CheckSchedule::from_environment();
  uint64_t num_runs_ = 0;
  uint64_t num_hashed_runs_ = 0;
  /// Of the stored values before this run; empty where they were not hashed.
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> updates_before_;
};

}  // namespace lockstep::detail
