#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: where LibTorch's factories make tensors on the calling thread if the caller names no device.
///
/// Covered are the functions that make a tensor from sizes and numbers (`torch::zeros`, `torch::rand`, `torch::arange`,
/// ...; the list is in placement.cpp) and `torch::empty`. Not covered are `torch::tensor`, `torch::from_blob`,
/// `torch::scalar_tensor` and `at::empty`: they make CPU tensors, since their callers write to the memory.

/// The dispatch key of the factories. LibTorch reserves it for extensions.
inline constexpr c10::DispatchKey kPlacementKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Makes `device` the place of new tensors on this thread during its lifetime. On the CPU, and without a device, it
/// costs nothing but hides placements around it.
class LOCKSTEP_API Placement {
 public:
  explicit Placement(std::optional<c10::Device> device);
  /// For a device that does not exist: factories throw a ValueError that lists those that do.
  explicit Placement(const std::string& missing_device);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  /// Registers the functions with LibTorch. Called before the first use, while few threads compute.
  static void prepare();

  /// The device of this thread; nothing on the CPU.
  static std::optional<c10::Device> current();

  struct Place {
    std::optional<c10::Device> device;
    std::string missing;
  };

 private:
  void enter();

  Place place_;
  const Place* before_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> guard_;
};

/// Suspends the placement of the calling thread: for code that makes CPU tensors for itself.
class NoPlacement {
 public:
  NoPlacement() : guard_(kPlacementKey) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::detail
