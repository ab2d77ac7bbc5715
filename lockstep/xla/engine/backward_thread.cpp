#include "lockstep/xla/engine/backward_thread.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/placement.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/offsets.h"
#include "lockstep/xla/engine/padding.h"
#include "lockstep/xla/engine/program.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A tensor that nothing computes.
at::Tensor blank_tensor(XlaDevice& device) {
  return wrap(fill(0, at::kFloat, {1}), device, LazyStorage::Listing::Blank);
}

/// Its backward pass does nothing, on the thread of the device.
struct DoNothing : torch::autograd::Function<DoNothing> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& tensor) {
    return blank_tensor(storage_of(tensor)->device());
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return gradients; }
};

/// When the thread begins with this pass, it has released all that it held for the last one.
void wait_for_backward_thread(XlaDevice& device) {
  if (is_backward_thread()) return;
  const at::AutoGradMode with_graph(true);
  const lockstep::detail::NoPlacement for_itself;
  const at::Tensor leaf = blank_tensor(device).requires_grad_();
  torch::autograd::grad({DoNothing::apply(leaf)}, {leaf}, {blank_tensor(device)});
}

std::vector<PendingWork> take_all(const std::vector<XlaDevice*>& devices) {
  std::vector<PendingWork> works;
  for (XlaDevice* device : devices) works.emplace_back(*device);
  return works;
}

bool is_known(const std::vector<PendingWork>& works, const std::vector<XlaDevice*>& devices) {
  const bool are_equal = std::all_of(
      works.begin(), works.end(), [&](const PendingWork& work) { return work.trace().hash == works[0].trace().hash; });
  if (are_equal && (works[0].empty() || may_have_program(works[0].trace(), devices))) return true;
  return is_known_with_offsets(works) || is_known_at_other_sizes(works);
}

}  // namespace

std::vector<PendingWork> take_pending(const std::vector<XlaDevice*>& devices) {
  std::vector<PendingWork> works = take_all(devices);
  bool any_backward = false;
  for (XlaDevice* device : devices) any_backward = device->has_backward() || any_backward;
  if (!any_backward || is_known(works, devices)) return works;
  works.clear();  // puts them back
  count([](Counters& all) { ++all.backward_waits; });
  for (XlaDevice* device : devices) {
    if (!device->has_backward()) continue;
    wait_for_backward_thread(*device);
    device->forget_backward();
  }
  return take_all(devices);
}

}  // namespace lockstep::xla
