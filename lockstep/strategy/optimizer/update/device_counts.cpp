#include "lockstep/strategy/optimizer/update/device_counts.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/update/optimizer_state.h"

namespace lockstep::detail {
namespace {

/// The step number in a state whose number is on the device.
constexpr int64_t kOnDevice = -1;

}  // namespace

size_t DeviceCounts::index_of(c10::Device device) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].device == device) return i;
  }
  const at::Tensor all = at::zeros({static_cast<int64_t>(places_.size())}, at::device(device).dtype(at::kFloat));
  devices_.push_back({device, all, all.unbind()});
  return devices_.size() - 1;
}

at::Tensor DeviceCounts::take(size_t place, c10::Device device, torch::optim::OptimizerParamState& state,
                              int64_t& step) {
  Place& here = places_[place];
  const size_t index = index_of(device);
  OnDevice& counts = devices_[index];
  LOCKSTEP_ASSERT(here.state == nullptr || here.device == index, "a parameter must stay on its device: number=", place);
  if (here.state == nullptr) ++counts.num_here;
  if (here.state != &state || here.host_step != step) {
    LOCKSTEP_ASSERT(step >= 0, "the step number of a state is on the device of another update: number=", place);
    counts.sent.emplace_back(place, step);
  }
  here = {&state, kOnDevice, index};
  step = kOnDevice;
  counts.taken.push_back(counts.each[place]);
  return counts.each[place];
}

void DeviceCounts::send() {
  for (OnDevice& counts : devices_) {
    const auto& sent = counts.sent;
    const bool are_one =
        !counts.has_unsent && !sent.empty() && sent.size() == counts.num_here &&
        std::all_of(sent.begin(), sent.end(), [&](const auto& one) { return one.second == sent[0].second; });
    if (are_one) {
      counts.all.fill_(static_cast<double>(sent[0].second));
    } else {
      for (const auto& [place, step] : sent) counts.each[place].fill_(static_cast<double>(step));
    }
    counts.sent.clear();
    counts.has_unsent = false;
  }
}

void DeviceCounts::advance(const at::Tensor& found_inf) {
  for (OnDevice& counts : devices_) {
    if (counts.taken.empty()) continue;
    const bool are_all = counts.taken.size() == counts.num_here;
    if (!found_inf.defined()) {
      are_all ? static_cast<void>(counts.all.add_(1)) : at::_foreach_add_(counts.taken, 1);
    } else {
      const at::Tensor one_or_none = at::rsub(found_inf.to(counts.device, /*non_blocking=*/true), 1);
      are_all ? static_cast<void>(counts.all.add_(one_or_none)) : at::_foreach_add_(counts.taken, one_or_none);
    }
  }
}

void DeviceCounts::end_step() {
  for (OnDevice& counts : devices_) {
    counts.taken.clear();
    counts.has_unsent = !counts.sent.empty();
  }
}

void DeviceCounts::drop(size_t place) {
  places_[place].state = nullptr;
  --devices_[places_[place].device].num_here;
}

void DeviceCounts::give(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> on_host;
  for (const OnDevice& counts : devices_) on_host.push_back(counts.all.cpu());
  size_t place = 0;
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (place == places_.size()) return;
      Place& here = places_[place++];
      if (here.state == nullptr || find_optimizer_state(optimizer, parameter) != here.state) continue;
      int64_t& step = *state_fields(rule_, *here.state, group.options()).step;
      if (step != here.host_step) continue;  // it was set
      here.host_step = step = static_cast<int64_t>(on_host[here.device].data_ptr<float>()[place - 1]);
    }
  }
}

}  // namespace lockstep::detail
