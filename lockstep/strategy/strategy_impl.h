#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/replica_threads.h"

namespace lockstep {

class CrossDeviceOps;
struct RuntimeConfig;

namespace detail {

/// Inside: what makes strategies differ. `Strategy` checks arguments and contexts, then asks one of these.
class LOCKSTEP_API StrategyImpl : public std::enable_shared_from_this<StrategyImpl> {
 public:
  virtual ~StrategyImpl();

  /// The public class, for example "MirroredStrategy".
  virtual const char* type_name() const = 0;

  /// Whether values of replicas are kept apart: PerReplica results, mirrored variables. False for strategies that have
  /// one device by definition.
  virtual bool distributes_values() const = 0;

  virtual bool is_default() const { return false; }

  virtual const CrossDeviceOps& cross_device_ops() const = 0;

  virtual void update_config(RuntimeConfig& config) const = 0;

  /// Devices of the local replicas, in replica order.
  const std::vector<LogicalDevice>& devices() const { return devices_; }
  int num_local_replicas() const { return static_cast<int>(devices_.size()); }
  int num_replicas_in_sync() const { return num_local_replicas(); }

  /// Calls `body(replica)` on every local replica, in its replica context, and waits.
  void call_for_each_replica(c10::function_ref<void(int)> body);

  /// Where replicas meet; `groups()[r]` is what replica r calls.
  comm::Rendezvous& rendezvous() { return *rendezvous_; }
  const comm::Group& group(int replica) const { return groups_[replica]; }

  int threads_per_replica() const { return threads_->threads_per_replica(); }

 protected:
  explicit StrategyImpl(std::vector<LogicalDevice> devices);

 private:
  std::vector<LogicalDevice> devices_;
  std::shared_ptr<comm::Rendezvous> rendezvous_;
  std::vector<comm::Group> groups_;
  std::unique_ptr<ReplicaThreads> threads_;
};

/// The strategy that is current where none is entered. Lives as long as the process.
LOCKSTEP_API StrategyImpl& default_strategy();

}  // namespace detail
}  // namespace lockstep
