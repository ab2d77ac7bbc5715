#include "lockstep/strategy/strategies/multi_worker_mirrored.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"
#include "lockstep/device/device_list.h"
#include "lockstep/device/process_task.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/reduce/nccl_groups.h"
#include "lockstep/strategy/run_options.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"

namespace lockstep {
namespace {

/// What the constructor determines before it makes the strategy.
struct Plan {
  std::shared_ptr<ClusterResolver> resolver;
  CommunicationOptions options;
  std::vector<LogicalDevice> devices{};
  std::shared_ptr<detail::Workers> workers{};
  bool is_chief = true;
  /// Whether there is a cluster, also if it has one worker.
  bool in_cluster = false;
};

std::vector<std::string> default_devices() {
  if (const auto gpus = list_logical_devices("GPU"); !gpus.empty()) {
    std::vector<std::string> names;
    for (const LogicalDevice& gpu : gpus) names.push_back(gpu.name);
    return names;
  }
  return {"CPU:0"};
}

Plan make_plan(std::shared_ptr<ClusterResolver> resolver, const CommunicationOptions& options,
               const std::vector<std::string>& devices) {
  options.validate();
  LOCKSTEP_CHECK_CONTEXT(
      resolver || !env::given("LOCKSTEP_VIEWS") || Environment().given("TF_CONFIG"),
      "[MultiWorkerMirroredStrategy] a worker of an elastic job (lockstep run -n LEAST:MOST) makes its ",
      "strategy inside the function of train_elastic, where its cluster is known");
  Plan plan{.resolver = resolver ? std::move(resolver) : resolve_cluster(), .options = options};
  const auto place = worker_place(*plan.resolver);
  plan.in_cluster = place.has_value();
  if (place) {
    plan.is_chief = place->is_chief;
    set_process_task({plan.resolver->task_type().value_or("worker"), plan.resolver->task_id().value_or(0)});
  }
  for (const std::string& name : resolve_device_list(devices.empty() ? default_devices() : devices)) {
    plan.devices.push_back(find_logical_device(name));
  }
  if (place && place->num_workers > 1) {
    std::vector<int> gpus;
    for (const LogicalDevice& device : plan.devices) {
      if (device.type == "GPU") gpus.push_back(device.torch_device.index());
    }
    plan.workers =
        detail::Workers::join(*plan.resolver, static_cast<int>(plan.devices.size()), std::move(gpus), options);
  }
  return plan;
}

class MultiWorkerMirroredImpl final : public detail::StrategyImpl {
 public:
  explicit MultiWorkerMirroredImpl(Plan plan)
      : StrategyImpl(plan.devices, plan.workers, wrap_groups(plan), plan.options),
        plan_(std::move(plan)),
        cross_device_ops_(detail::does_without_nccl(plan_.options) ? std::make_shared<ReductionToOneDevice>()
                                                                   : select_cross_device_ops(names())) {}

  const char* type_name() const override { return "MultiWorkerMirroredStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return *cross_device_ops_; }
  std::shared_ptr<ClusterResolver> cluster_resolver() const override { return plan_.resolver; }
  bool is_chief() const override { return plan_.is_chief; }
  bool between_graph() const override { return true; }

  void update_config(RuntimeConfig& config) const override {
    if (!plan_.in_cluster) return;
    const std::string type = plan_.resolver->task_type().value_or("worker");
    const int task = plan_.resolver->task_id().value_or(0);
    config.collective_group_leader = collective_leader(plan_.resolver->cluster_spec(), type, task);
    config.device_filters = {c10::str("/job:", type, "/task:", task)};
  }

 private:
  /// The replicas of one worker use NCCL as those of MirroredStrategy do. With several workers their engine is chosen
  /// by all of them.
  static WrapGroups wrap_groups(const Plan& plan) {
    if (plan.workers || plan.devices.size() < 2) return nullptr;
    return detail::nccl_groups("MultiWorkerMirroredStrategy", plan.devices, plan.options);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const LogicalDevice& device : devices()) names.push_back(device.name);
    return names;
  }

  Plan plan_;
  std::shared_ptr<const CrossDeviceOps> cross_device_ops_;
};

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(std::shared_ptr<ClusterResolver> cluster_resolver,
                                                         const CommunicationOptions& communication_options,
                                                         const std::vector<std::string>& devices)
    : Strategy(std::make_shared<MultiWorkerMirroredImpl>(
          make_plan(std::move(cluster_resolver), communication_options, devices))) {}

std::string MultiWorkerMirroredStrategy::engine() const {
  const detail::Workers* workers = detail::Access::impl(*this).workers();
  return workers == nullptr ? "local" : workers->engine();
}

std::string MultiWorkerMirroredStrategy::engine_reason() const {
  const detail::Workers* workers = detail::Access::impl(*this).workers();
  return workers == nullptr ? "there are no other workers" : workers->reason();
}

}  // namespace lockstep
