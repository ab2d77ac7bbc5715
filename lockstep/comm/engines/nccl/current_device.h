#pragma once

#include <string_view>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>

namespace lockstep::comm {

/// Makes a GPU the current one of this thread, until it goes out of scope. As in LibTorch, going back to a GPU that the
/// process does not use makes no context on it.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : guard_(static_cast<c10::DeviceIndex>(device)) {}

 private:
  c10::cuda::CUDAGuard guard_;
};

/// CollectiveError that names the call and the device unless `code` is cudaSuccess.
void check_cuda(cudaError_t code, std::string_view call, int device);

}  // namespace lockstep::comm
