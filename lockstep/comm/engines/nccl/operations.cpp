#include "lockstep/comm/engines/nccl/operations.h"

namespace lockstep::comm {
namespace {

ncclRedOp_t nccl_op(ReduceOp::Kind op) {
  switch (op) {
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Max:
      return ncclMax;
    case ReduceOp::Product:
      return ncclProd;
    default:
      return ncclSum;
  }
}

ncclResult_t post_one(const DeviceOperation& operation, ncclComm_t communicator, cudaStream_t stream) {
  const auto dtype = nccl_dtype(operation.dtype);
  if (!dtype) return ncclInvalidArgument;
  const auto op = nccl_op(operation.reduce_op);
  const auto& [kind, input, output, count, scalar, reduce_op, peer] = operation;
  switch (kind) {
    case DeviceOperation::Kind::AllReduce:
      return ncclAllReduce(input, output, count, *dtype, op, communicator, stream);
    case DeviceOperation::Kind::Reduce:
      return ncclReduce(input, output, count, *dtype, op, peer, communicator, stream);
    case DeviceOperation::Kind::Broadcast:
      return ncclBroadcast(input, output, count, *dtype, peer, communicator, stream);
    case DeviceOperation::Kind::AllGather:
      return ncclAllGather(input, output, count, *dtype, communicator, stream);
    case DeviceOperation::Kind::ReduceScatter:
      return ncclReduceScatter(input, output, count, *dtype, op, communicator, stream);
    case DeviceOperation::Kind::Send:
      return ncclSend(input, count, *dtype, peer, communicator, stream);
    case DeviceOperation::Kind::Receive:
      return ncclRecv(output, count, *dtype, peer, communicator, stream);
  }
  return ncclInvalidArgument;
}

}  // namespace

std::optional<ncclDataType_t> nccl_dtype(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Char:
      return ncclInt8;
    case c10::ScalarType::Byte:
      return ncclUint8;
    case c10::ScalarType::Int:
      return ncclInt32;
    case c10::ScalarType::Long:
      return ncclInt64;
    case c10::ScalarType::Half:
      return ncclFloat16;
    case c10::ScalarType::BFloat16:
      return ncclBfloat16;
    case c10::ScalarType::Float:
      return ncclFloat32;
    case c10::ScalarType::Double:
      return ncclFloat64;
    default:
      return std::nullopt;
  }
}

ncclResult_t post(std::span<const DeviceOperation> operations, ncclComm_t communicator, cudaStream_t stream) {
  for (const DeviceOperation& operation : operations) {
    if (operation.count == 0) continue;
    const auto code = post_one(operation, communicator, stream);
    if (code != ncclSuccess && code != ncclInProgress) return code;
  }
  return ncclSuccess;
}

}  // namespace lockstep::comm
