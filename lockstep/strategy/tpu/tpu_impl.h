#pragma once

#include <memory>
#include <vector>

#include "lockstep/cluster/tpu/device_assignment.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::detail {

/// The parts that a TPUStrategy is made from.
struct TPUPlan {
  std::shared_ptr<ClusterResolver> resolver;
  tpu::Topology topology;
  tpu::DeviceAssignment assignment;
  bool use_spmd_partitioning = false;
};

/// Internal: a strategy whose replicas are traced, and executed as one program.
class TPUImpl final : public StrategyImpl {
 public:
  explicit TPUImpl(TPUPlan plan);

  const char* type_name() const override { return "TPUStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return cross_device_ops_; }
  void update_config(RuntimeConfig& config) const override;
  std::shared_ptr<ClusterResolver> cluster_resolver() const override { return plan_.resolver; }
  bool requires_equal_shapes() const override { return true; }
  void before_merge(int replica) override;
  bool is_traced() const override { return true; }
  void call_for_each_replica(c10::function_ref<void(int)> body) override;
  std::unique_ptr<StepReplay> make_replay() override;

  const TPUPlan& plan() const { return plan_; }
  const xla::ReplicaDevices& xla_devices() const { return xla_devices_; }

 private:
  TPUPlan plan_;
  xla::ReplicaDevices xla_devices_;
  ReductionToOneDevice cross_device_ops_;
};

}  // namespace lockstep::detail
