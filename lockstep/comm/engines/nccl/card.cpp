#include "lockstep/comm/engines/nccl/card.h"

#include <cuda_runtime.h>

#include "lockstep/comm/engines/nccl/current_device.h"

namespace lockstep::comm {

std::string name_of_card(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", device);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name = "GPU-";
  for (const char byte : properties.uuid.bytes) {
    name += kDigits[static_cast<unsigned char>(byte) >> 4];
    name += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return name;
}

}  // namespace lockstep::comm
