#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backends/nccl/lane.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/transport_base.h"

namespace lockstep::comm {

/// Messages between GPUs: all of an exchange are one group of NCCL's sends and receives, on a stream of the lane's own.
/// What is sent must lie ready; the caller's streams are not waited for.
class NcclTransport : public TransportBase {
 public:
  NcclTransport(Job& job, const TransportOptions& options);
  ~NcclTransport() override;

  bool moves_device_memory() const override { return true; }

 private:
  void do_exchange(const Call& call) override;
  void do_abort() override {}
  /// Hands the messages to NCCL; in progress where it has not taken them yet.
  static ncclResult_t post(const Call& call, const NcclLane& lane);
  /// Returns when `progress` gives success in place of cudaErrorNotReady; gives the lane up and throws when it cannot.
  template <typename Progress>
  void wait(const Call& call, NcclLane& lane, Progress progress);
  [[noreturn]] void fail(const Call& call, NcclLane& lane, const std::string& words);

  std::vector<std::unique_ptr<NcclLane>> lanes_;
};

}  // namespace lockstep::comm
