#include "lockstep/strategy/local_gradient_groups.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/group_impl.h"

namespace lockstep::detail {

LocalGradientGroups::LocalGradientGroups(int num_replicas, const WrapGroups& wrap_groups,
                                         std::chrono::milliseconds timeout)
    : rendezvous_(std::make_shared<comm::Rendezvous>(num_replicas, "gradients")),
      groups_(comm::make_local_groups(rendezvous_)) {
  if (wrap_groups) groups_ = wrap_groups(std::move(groups_), rendezvous_);
  rendezvous_->set_default_timeout(timeout);
  dumped_ = comm::dump_local_replicas(num_replicas, rendezvous_->recorder());
}

void LocalGradientGroups::begin_run(int depth) {
  if (depth > 0 && !left_) return;
  rendezvous_->reset();
  for (const comm::Group& group : groups_) group.impl()->begin_run();
  left_ = false;
  begun_at_ = depth;
}

/// An error ends the groups at any depth; a return only the run that has begun them.
void LocalGradientGroups::leave(int replica, int depth, std::exception_ptr error) {
  if (!error && depth != begun_at_) return;
  rendezvous_->leave(replica, error);
  group(replica).impl()->leave(std::move(error));
  left_ = true;
}

void LocalGradientGroups::check_queued_work(const char* asks) const { groups_[0].impl()->check_queued_work(asks); }

std::unique_ptr<LocalGradientGroups> make_local_gradient_groups(const std::vector<c10::Device>& devices,
                                                                const WrapGroups& wrap_groups,
                                                                std::chrono::milliseconds timeout) {
  const bool on_gpus = std::all_of(devices.begin(), devices.end(), [](c10::Device d) { return d.is_cuda(); });
  if (devices.size() < 2 || !on_gpus) return nullptr;
  return std::make_unique<LocalGradientGroups>(static_cast<int>(devices.size()), wrap_groups, timeout);
}

}  // namespace lockstep::detail
