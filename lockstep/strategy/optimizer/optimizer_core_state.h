#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/optimizer/optimizer_replica.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"
#include "lockstep/strategy/optimizer/replica_check.h"
#include "lockstep/strategy/optimizer/update/device_optimizer.h"
#include "lockstep/strategy/optimizer/update/planned_parameters.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

/// Internal: what an optimizer consists of.
struct OptimizerCoreState final : RunObserver {
  const std::shared_ptr<StrategyImpl> strategy;
  const std::vector<std::shared_ptr<UpdateObserver>> modules;
  const std::vector<CentralTensor> central;
  const std::vector<ReplicaParameters> tensors;
  ReplicaCheck check;
  const OptimizerPrototype prototype;
  const size_t num_groups;
  /// Whether the optimizer can update rows alone.
  const bool rows_known;
  const bool elementwise;
  const Gradients gradients;
  const GradientCompression compression;
  const Shard shard;
  /// Whether several replicas could change the learning rates.
  const bool checks_rates;
  UpdatePlan plan;
  /// What the plan was made for.
  PlannedParameters planned;
  std::vector<std::unique_ptr<OptimizerReplica>> replicas;
  std::atomic<bool> has_stepped{false};
  /// The same in the last run.
  std::atomic<bool> has_stepped_in_run{false};
  std::atomic<int> num_checked_losses{0};
  std::vector<double> rates_before_run;
  /// For each parameter: whether its state was loaded from a table that was updated by rows, though it is not here.
  std::vector<char> rows_elsewhere;
  /// How often state was loaded: the tensors of a traced step are others then.
  size_t num_loads = 0;
  /// Collectives of replicas match those for the same optimizer only.
  const uint64_t number;

  explicit OptimizerCoreState(const OptimizerSetup& setup);

  void make_plan();
  /// Makes the plan anew where parameters have changed and none was updated yet; throws where one was.
  void follow_parameters();
  void check_plan(const OptimizerReplica& replica) const;
  void check_groups() const;
  uint64_t before_run() override;
  void after_run() override;
  size_t fingerprint() const override;
  void add_numbers(std::vector<double>& numbers) const override;
  std::string why_not_captured() const override;
  void list_parameters(std::vector<at::Tensor>& parameters) const override;
  void begin_recorded_run() override;
  void forget_recorded_run() override;
  void begin_replica(int replica) override;
  void end_replica(int replica) override;
  void check_replicas() override;
  void count_replay() override { check.count_replayed_step(); }
  HeldTensors held_by(size_t replica) const;
  void add_buffers(int replica, HeldTensors& held) const;
  void check_before_first_step(int replica);

  /// Whether updates are divided that would be replicated.
  bool divides() const { return shard != Shard::None && has_several_replicas() && central.empty(); }
  bool has_several_replicas() const { return strategy->num_replicas_in_sync() > 1; }
  OptimizerReplica& current_replica(const char* operation) const;
  comm::CollectiveOwner owner(const char* operation) const { return {"optimizer", number, operation}; }

  bool averages() const { return gradients == Gradients::Mean && has_several_replicas() && planned.size() > 0; }
  void warn_of_mean(const at::Tensor& loss);
  void reduce(OptimizerReplica& replica) const;
  /// Whether `update` can be given a flag with the gradients that there are.
  bool can_skip(OptimizerReplica& replica) const;
  /// Nothing is updated where `found_inf` is defined and 1. It is a float on the replica's device, which nobody reads
  /// on the host.
  void update(OptimizerReplica& replica, const at::Tensor& found_inf = {});
  void update_parameters(OptimizerReplica& replica, const at::Tensor& found_inf);
  void update_published(OptimizerReplica& replica, const AllGradients& all, const std::vector<char>& present,
                        ParameterRange segment) const;
  void update_from_sums(OptimizerReplica& replica, const AgreedGradients& agreed, const at::Tensor& found_inf) const;
};

}  // namespace lockstep::detail
