#pragma once

#include <optional>
#include <span>

#include <c10/core/ScalarType.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include "lockstep/comm/device_collectives.h"

namespace lockstep::comm {

/// NCCL's name of a dtype; nothing where NCCL cannot reduce it.
std::optional<ncclDataType_t> nccl_dtype(c10::ScalarType dtype);

/// Posts operations of one rank, inside a group of NCCL's. Operations on nothing are skipped. Returns the first error.
ncclResult_t post(std::span<const DeviceOperation> operations, ncclComm_t communicator, cudaStream_t stream);

}  // namespace lockstep::comm
