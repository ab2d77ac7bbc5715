#pragma once

#include <chrono>
#include <string>

#include <cuda_runtime.h>
#include <nccl.h>

#include "lockstep/comm/engines/nccl/current_device.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// One communicator of all workers, with a stream of its own. Used by one thread at a time, with its GPU current.
class NcclLane {
 public:
  /// Returns when all workers are connected. CollectiveError with NCCL's message, at the deadline or as soon as the job
  /// fails.
  NcclLane(Job& job, const std::string& key, int device, std::chrono::milliseconds timeout);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  int device() const { return device_; }
  ncclComm_t communicator() const { return communicator_; }
  cudaStream_t stream() const { return stream_; }

  /// Records an event after the work in the stream.
  cudaError_t mark();
  /// Returns cudaSuccess when the event was reached, cudaErrorNotReady before.
  cudaError_t progress() const;

  /// The communicator's state: success, in progress, or what went wrong.
  ncclResult_t state() const;
  /// Returns NCCL's message for an error of this communicator.
  std::string words(ncclResult_t code) const;

  /// Aborts what is in flight and frees all resources.
  void abort();

 private:
  /// Waits until a nonblocking call is complete, or until `give_up` returns true.
  template <typename GiveUp>
  ncclResult_t settle(ncclResult_t code, GiveUp give_up) const;
  void connect(Job& job, const std::string& key, std::chrono::milliseconds timeout);

  int device_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace lockstep::comm
