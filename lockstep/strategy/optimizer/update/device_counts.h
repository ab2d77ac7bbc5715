#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/strategy/optimizer/update/rows/row_state.h"

namespace lockstep::detail {

/// Internal: the step numbers of an optimizer's parameters as floats on their devices, where the kernels of a captured
/// step can read and advance them. A state whose number is there has -1 on the host, until `give` writes the number.
///
/// A parameter's place is its number in the order of the parameter groups.
class DeviceCounts {
 public:
  explicit DeviceCounts(UpdateRule rule) : rule_(rule) {}

  void set_num_places(size_t number) { places_.resize(number); }
  /// Returns the number of a parameter that this step updates. `step` is that of the state. Where the state is another
  /// one since the last step, or its number was set, the number is sent by `send`.
  at::Tensor take(size_t place, c10::Device device, torch::optim::OptimizerParamState& state, int64_t& step);
  void send();
  /// Adds 1 to the numbers that were taken, or nothing where `found_inf` is defined and 1.
  void advance(const at::Tensor& found_inf);
  /// Forgets what was taken.
  void end_step();

  bool has(size_t place) const { return places_[place].state != nullptr; }
  /// The number is no longer here. Only after `give`.
  void drop(size_t place);
  /// Writes the numbers to the states that they were taken for, if the optimizer has them still. Waits for the devices.
  void give(torch::optim::Optimizer& optimizer);

 private:
  struct Place {
    /// Null if the number is not here.
    torch::optim::OptimizerParamState* state = nullptr;
    /// What the state has on the host.
    int64_t host_step = 0;
    size_t device = 0;
  };
  struct OnDevice {
    c10::Device device;
    /// One number for each place.
    at::Tensor all;
    std::vector<at::Tensor> each;
    size_t num_here = 0;
    /// Those that this step advances, and those whose number it sends.
    std::vector<at::Tensor> taken = {};
    std::vector<std::pair<size_t, int64_t>> sent = {};
    /// Whether some of them are of a step that threw.
    bool has_unsent = false;
  };

  size_t index_of(c10::Device device);

  const UpdateRule rule_;
  std::vector<Place> places_;
  std::vector<OnDevice> devices_;
};

}  // namespace lockstep::detail
