#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/engines/nccl/lane.h"
#include "lockstep/comm/transport/engine_module.h"
#include "lockstep/comm/transport/transport_base.h"

namespace lockstep::comm {

/// Messages between GPUs: all of an exchange are one group of NCCL's sends and receives, on a stream of the lane's own.
/// Memory to be sent must be ready: the transport does not wait for the caller's streams.
class NcclTransport : public TransportBase {
 public:
  NcclTransport(Job& job, const TransportOptions& options);
  ~NcclTransport() override;

  bool moves_device_memory() const override { return true; }

 private:
  void do_exchange(const Exchange& exchange) override;
  void do_abort() override {}
  /// Posts the messages; ncclInProgress where NCCL has not accepted them yet.
  static ncclResult_t post(const Exchange& exchange, const NcclLane& lane);
  /// Waits while `progress` returns cudaErrorNotReady. Aborts the lane and throws on any other error.
  template <typename Progress>
  void wait(const Exchange& exchange, NcclLane& lane, Progress progress);
  [[noreturn]] void fail(const Exchange& exchange, NcclLane& lane, const std::string& words);

  std::vector<std::shared_ptr<NcclLane>> lanes_;
};

}  // namespace lockstep::comm
