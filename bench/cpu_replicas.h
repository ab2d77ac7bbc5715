#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/strategies/central_storage.h"
#include "lockstep/strategy/strategies/mirrored.h"

namespace lockstep::bench {

/// During its lifetime: this many logical CPUs, and for every replica, and for LibTorch alone on the calling thread,
/// the number of threads that a replica has when all of them compute.
class CpuReplicas {
 public:
  explicit CpuReplicas(int replicas) : threads_(std::max(1, num_hardware_threads() / replicas)), share_(threads_) {
    set_logical_devices("CPU", replicas);
    set_threads_per_replica(threads_);
    detail::set_blas_threads(threads_);
  }
  ~CpuReplicas() { set_threads_per_replica(0); }
  CpuReplicas(const CpuReplicas&) = delete;
  CpuReplicas& operator=(const CpuReplicas&) = delete;

  int threads_per_replica() const { return threads_; }

 private:
  int threads_;
  detail::ThreadShare share_;
};

/// Makes a strategy, "mirrored" or "central", of the first `replicas` logical CPUs.
inline Strategy cpu_strategy(const std::string& name, int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  if (name == "mirrored") return MirroredStrategy(devices);
  LOCKSTEP_CHECK_VALUE(name == "central", "[bench] the strategy must be mirrored or central: strategy=", name);
  return CentralStorageStrategy(devices);
}

}  // namespace lockstep::bench
