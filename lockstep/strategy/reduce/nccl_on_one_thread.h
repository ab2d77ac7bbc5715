#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"

namespace lockstep::comm {
class DeviceCollectives;
}

namespace lockstep::detail {

/// Collectives of NCCL between the GPUs of this process, for values that one thread holds. Communicators are made at
/// the first use and kept. Thread-safe.
class NcclOnOneThread {
 public:
  NcclOnOneThread();
  ~NcclOnOneThread();

  /// Reduces components, each on another card, onto `device`, which is the card of one of them. An undefined tensor
  /// where NCCL cannot do that.
  at::Tensor reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device);
  /// Returns a copy of `value` on each of the devices; the first one is the card that has it, and shares its memory.
  /// An empty list where NCCL cannot do that.
  std::vector<at::Tensor> broadcast(const at::Tensor& value, const std::vector<c10::Device>& devices);
  /// Throws, once, where a call has returned, and its work has failed since. `asks` stands in the error.
  void check(const char* asks);

 private:
  /// Null where NCCL cannot connect these devices.
  std::shared_ptr<comm::DeviceCollectives> between(const std::vector<c10::Device>& devices);

  std::mutex mutex_;
  std::map<std::vector<int>, std::shared_ptr<comm::DeviceCollectives>> made_;
};

}  // namespace lockstep::detail
