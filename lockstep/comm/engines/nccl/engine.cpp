#include <cuda_runtime.h>
#include <nccl.h>

#include "lockstep/comm/engines/nccl/card.h"
#include "lockstep/comm/engines/nccl/nccl_collectives.h"
#include "lockstep/comm/engines/nccl/nccl_transport.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {
namespace {

std::string why_not() {
  int count = 0;
  const auto code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(code);
  return count > 0 ? "" : "no CUDA device";
}

std::string version() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return "";
  return std::string(ranks_may_share_a_card() ? "stand-in for NCCL " : "NCCL ") + std::to_string(code / 10000) + "." +
         std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

constexpr EngineModule kNccl{
    .make_transport = [](Job& job, const TransportOptions& options) -> std::shared_ptr<Transport> {
      return std::make_shared<NcclTransport>(job, options);
    },
    .why_not = &why_not,
    .remark = &version,
    .make_device_collectives = [](const DeviceCollectivesOptions& options) -> std::shared_ptr<DeviceCollectives> {
      return std::make_shared<NcclCollectives>(options);
    },
    .card_of = &name_of_card,
    .takes_ranks_of_one_card = &ranks_may_share_a_card,
};

}  // namespace

extern "C" LOCKSTEP_API const EngineModule* lockstep_engine() { return &kNccl; }

}  // namespace lockstep::comm
