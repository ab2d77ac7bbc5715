#include "lockstep/comm/engines/nccl/lane.h"

#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{1};
/// How long finalizing a communicator may take.
constexpr std::chrono::seconds kFinalizeTime{10};

/// Worker 0 creates the identity of the communicator; the others get it from the job.
ncclUniqueId identity(Job& job, const std::string& key, std::chrono::milliseconds timeout) {
  ncclUniqueId id{};
  if (job.worker() == 0) {
    const auto code = ncclGetUniqueId(&id);
    LOCKSTEP_CHECK_COLLECTIVE(code == ncclSuccess, "[nccl] ncclGetUniqueId failed: worker=", job.name(0),
                              "; NCCL says: ", ncclGetErrorString(code), ": ", ncclGetLastError(nullptr));
    job.set(key, std::string(id.internal, sizeof(id.internal)));
    return id;
  }
  const auto text = job.get(key, timeout);
  LOCKSTEP_ASSERT(text.size() == sizeof(id.internal), "size=", text.size());
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

}  // namespace

NcclLane::NcclLane(Job& job, const std::string& key, int device, std::chrono::milliseconds timeout) : device_(device) {
  const CurrentDevice current(device);
  try {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", device);
    check_cuda(cudaEventCreateWithFlags(&end_, cudaEventDisableTiming), "cudaEventCreateWithFlags", device);
    connect(job, key, timeout);
  } catch (...) {
    abort();
    throw;
  }
}

NcclLane::~NcclLane() {
  if (communicator_ == nullptr) return;
  const CurrentDevice current(device_);
  const auto deadline = Clock::now() + kFinalizeTime;
  const auto code = settle(ncclCommFinalize(communicator_), [&] { return Clock::now() >= deadline; });
  if (code == ncclSuccess) {
    ncclCommDestroy(communicator_);
    communicator_ = nullptr;
  }
  abort();
}

void NcclLane::connect(Job& job, const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto id = identity(job, key, timeout);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto code = settle(ncclCommInitRankConfig(&communicator_, job.num_workers(), id, job.worker(), &config),
                           [&] { return Clock::now() >= deadline || job.failure() != nullptr; });
  if (code == ncclSuccess) return;
  const auto* failure = job.failure();
  LOCKSTEP_CHECK_COLLECTIVE(false, "[nccl] all workers must join the communicator: worker=", job.name(job.worker()),
                            ", device=", device_, ", timeout=", timeout.count(), " ms; ",
                            failure != nullptr ? failure->reason : "NCCL says: " + words(code));
}

template <typename GiveUp>
ncclResult_t NcclLane::settle(ncclResult_t code, GiveUp give_up) const {
  while (code == ncclInProgress && !give_up()) {
    std::this_thread::sleep_for(kPollInterval);
    code = state();
  }
  return code;
}

cudaError_t NcclLane::mark() { return cudaEventRecord(end_, stream_); }

cudaError_t NcclLane::progress() const {
  const auto code = cudaEventQuery(end_);
  // Clears this thread's last error, which LibTorch would report as its own.
  if (code == cudaErrorNotReady) cudaGetLastError();
  return code;
}

ncclResult_t NcclLane::state() const {
  ncclResult_t found = ncclSuccess;
  const auto code = ncclCommGetAsyncError(communicator_, &found);
  return code == ncclSuccess ? found : code;
}

std::string NcclLane::words(ncclResult_t code) const {
  return std::string(ncclGetErrorString(code)) + ": " + ncclGetLastError(communicator_);
}

void NcclLane::abort() {
  const CurrentDevice current(device_);
  if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
  if (end_ != nullptr) cudaEventDestroy(std::exchange(end_, nullptr));
  if (stream_ != nullptr) cudaStreamDestroy(std::exchange(stream_, nullptr));
}

}  // namespace lockstep::comm
