#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::detail {

/// Takes the groups of ranks that are threads of this process, with their rendezvous, and returns those that replicas
/// call.
using WrapGroups =
    std::function<std::vector<comm::Group>(std::vector<comm::Group>, const std::shared_ptr<comm::Rendezvous>&)>;

/// Internal: the groups in which the replicas on the GPUs of one process sum gradients while they compute others. The
/// threads of GradientBuckets call them, beside the collectives that the replicas make themselves.
class LocalGradientGroups {
 public:
  /// `timeout`: how long replicas wait for each other.
  LocalGradientGroups(int num_replicas, const WrapGroups& wrap_groups, std::chrono::milliseconds timeout);

  const comm::Group& group(int replica) const { return groups_[static_cast<size_t>(replica)]; }

  /// Before the replicas of a run start. Runs inside merge functions, with a larger depth, go on with the groups of the
  /// run around them, whose replicas wait.
  void begin_run(int depth);
  /// A replica has left a run of that depth: threads that wait for it get an error.
  void leave(int replica, int depth, std::exception_ptr error);
  /// Throws where work that replicas have queued has failed; `asks` stands in the error.
  void check_queued_work(const char* asks) const;

 private:
  std::shared_ptr<comm::Rendezvous> rendezvous_;
  std::vector<comm::Group> groups_;
  /// Their calls are part of dumps for as long as this lives.
  std::shared_ptr<void> dumped_;
  /// Whether a replica has left since the groups began, in a run of this depth.
  std::atomic<bool> left_{false};
  int begun_at_ = 0;
};

/// Null unless there are several replicas, all on GPUs.
std::unique_ptr<LocalGradientGroups> make_local_gradient_groups(const std::vector<c10::Device>& devices,
                                                                const WrapGroups& wrap_groups,
                                                                std::chrono::milliseconds timeout);

}  // namespace lockstep::detail
