#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "lockstep/device/stream.h"
#include "lockstep/strategy/optimizer/loss_scaler_options.h"

/// Internal: the scale of losses on GPUs, where a step must not wait for the gradients.
namespace lockstep::detail {

/// The factor of a loss. On GPUs it is a float on the device, which the host does not know.
struct StepScale {
  double on_host = 0;
  /// Undefined elsewhere.
  at::Tensor on_device = {};

  bool operator==(const StepScale& other) const {
    return on_device.defined() ? on_device.is_same(other.on_device) : on_host == other.on_host;
  }
  /// Returns the factor as a tensor like a loss.
  at::Tensor like(const at::Tensor& loss) const;
  /// Returns a number on a device times the factor.
  at::Tensor times(const at::Tensor& number) const;
};

/// The numbers of a LossScaler.
struct ScaleNumbers {
  double scale = 0;
  /// Updates in a row since the scale was last changed.
  int64_t num_good = 0;
  int64_t num_skipped = 0;
};

/// Whether floats can be multiplied and divided by it.
bool is_scale(double scale);
/// Throws because the scale has become too small.
[[noreturn]] void throw_no_scale(const ScaleNumbers& numbers);

/// These numbers in tensors on the device of one replica, which keep their addresses. The scale is rounded to a float.
class DeviceScale {
 public:
  explicit DeviceScale(c10::Device device);

  /// The calling thread's stream is that of the replica from now on.
  void set(const ScaleNumbers& numbers, const LossScalerOptions& options);
  const at::Tensor& scale() const { return scale_; }
  /// Waits for the device.
  ScaleNumbers read() const;
  /// Follows the gradients of a step: `found_inf` is 1 where they were not finite, else 0.
  void follow(const at::Tensor& found_inf, const LossScalerOptions& options);

  /// Throws a ValueError where the scale has become too small. Looks at each 64th call, at the scale of the time of an
  /// earlier call: nothing waits. `stream` is that of the replica.
  void look(const std::optional<c10::Stream>& stream);

 private:
  at::Tensor scale_;
  at::Tensor num_good_;
  at::Tensor num_skipped_;
  /// The copy of the scale that is on its way to the host.
  at::Tensor seen_;
  std::optional<StreamEvent> arrives_;
  uint64_t num_looks_ = 0;
};

/// Divides numbers, each with memory of its own, by a scale on the device. Returns a float: 1 where one of them is not
/// finite, else 0. Throws for float16, where they would vanish.
at::Tensor unscale(std::vector<at::Tensor>& numbers, const at::Tensor& scale);

}  // namespace lockstep::detail
