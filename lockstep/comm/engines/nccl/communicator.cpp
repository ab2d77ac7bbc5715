#include "lockstep/comm/engines/nccl/communicator.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/nccl/current_device.h"
#include "lockstep/comm/engines/nccl/operations.h"

namespace lockstep::comm {
namespace {

/// How long an abort waits for a call of NCCL's to return. Non-blocking ones do so at once, unless they are stuck.
constexpr std::chrono::seconds kStuckCall{5};

/// Returns cudaSuccess when the event was reached, cudaErrorNotReady before.
cudaError_t progress_of(cudaEvent_t event) {
  const auto code = cudaEventQuery(event);
  // Clears this thread's last error, which LibTorch would report as its own.
  if (code == cudaErrorNotReady) cudaGetLastError();
  return code;
}

}  // namespace

void check_cuda(cudaError_t code, std::string_view call, int device) {
  LOCKSTEP_CHECK_COLLECTIVE(code == cudaSuccess, "[nccl] ", call, " failed: device=", device,
                            "; CUDA says: ", cudaGetErrorString(code));
}

bool is_capturing(int device) {
  const auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream.stream(), &status), "cudaStreamIsCapturing", device);
  return status != cudaStreamCaptureStatusNone;
}

Communicator::Communicator(int device, int rank) : device_(device), rank_(rank) {
  const CurrentDevice current(device);
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", device);
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority",
             device);
}

Communicator::~Communicator() {
  try {
    const CurrentDevice current(device_);
    for (cudaEvent_t event : all_events_) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  } catch (const c10::Error&) {  // CUDA has ended, and all of it with it
  }
  cudaGetLastError();
}

ncclResult_t Communicator::join(int num_ranks, const ncclUniqueId& id) {
  const CurrentDevice current(device_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(&communicator_, num_ranks, id, rank_, &config);
}

ncclResult_t Communicator::state() {
  // A thread that is stuck in a call of NCCL's must not stop those who would abort it.
  const std::unique_lock lock(use_, std::try_to_lock);
  if (!lock.owns_lock() || communicator_ == nullptr) return ncclInProgress;
  ncclResult_t found = ncclSuccess;
  const auto code = ncclCommGetAsyncError(communicator_, &found);
  return code == ncclSuccess ? found : code;
}

std::string Communicator::words(ncclResult_t code) {
  const std::string text = ncclGetErrorString(code);
  const std::unique_lock lock(use_, kStuckCall);
  return lock.owns_lock() ? text + ": " + ncclGetLastError(communicator_) : text;
}

cudaEvent_t Communicator::take_event() {
  {
    const std::lock_guard lock(pending_mutex_);
    if (!free_events_.empty()) {
      const auto event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags", device_);
  const std::lock_guard lock(pending_mutex_);
  all_events_.push_back(event);
  return event;
}

Communicator::Work Communicator::begin() {
  const CurrentDevice current(device_);
  Work work{c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)), is_capturing(device_),
            take_event()};
  check_cuda(cudaEventRecord(work.ready, work.stream.stream()), "cudaEventRecord", device_);
  check_cuda(cudaStreamWaitEvent(stream_, work.ready, 0), "cudaStreamWaitEvent", device_);
  return work;
}

ncclResult_t Communicator::post(std::span<const DeviceOperation> operations) {
  if (communicator_ == nullptr) return ncclInvalidUsage;
  const CurrentDevice current(device_);
  return comm::post(operations, communicator_, stream_);
}

void Communicator::end(const Work& work, const DeviceCall& call) {
  const CurrentDevice current(device_);
  const auto event = take_event();
  check_cuda(cudaEventRecord(event, stream_), "cudaEventRecord", device_);
  check_cuda(cudaStreamWaitEvent(work.stream.stream(), event, 0), "cudaStreamWaitEvent", device_);
  const std::lock_guard lock(pending_mutex_);
  if (work.captured) {
    free_events_.insert(free_events_.end(), {work.ready, event});
  } else {
    pending_.push_back({work.ready, event, call.text, call.timeout, std::nullopt});
  }
}

std::optional<std::string> Communicator::problem() {
  const auto code = state();
  const std::lock_guard lock(pending_mutex_);
  if (code != ncclSuccess && code != ncclInProgress) {
    const std::string text = pending_.empty() ? "no call in flight" : pending_.front().text;
    return c10::str(text, " of rank ", rank_, ": NCCL says: ", words(code));
  }
  while (!pending_.empty()) {
    Pending& first = pending_.front();
    const auto progress = progress_of(first.end);
    if (progress == cudaErrorNotReady) return problem_of(first);
    if (progress != cudaSuccess) {
      return c10::str(first.text, " of rank ", rank_, ": CUDA says: ", cudaGetErrorString(progress));
    }
    free_events_.insert(free_events_.end(), {first.ready, first.end});
    pending_.pop_front();
  }
  return std::nullopt;
}

std::optional<std::string> Communicator::problem_of(Pending& first) const {
  if (!first.begun) {
    if (progress_of(first.ready) == cudaSuccess) first.begun = Clock::now();
    return std::nullopt;
  }
  if (Clock::now() - *first.begun < first.timeout) return std::nullopt;
  return c10::str(first.text, " of rank ", rank_, " was not done on device ", device_, " within ",
                  first.timeout.count(), " ms");
}

bool Communicator::is_idle() {
  const std::lock_guard lock(pending_mutex_);
  return pending_.empty();
}

void Communicator::shorten(std::chrono::milliseconds limit) {
  const std::lock_guard lock(pending_mutex_);
  for (Pending& pending : pending_) {
    const auto begun = pending.begun.value_or(Clock::now());
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
    pending.timeout = std::min(pending.timeout, spent + limit);
  }
}

ncclResult_t Communicator::finalize() {
  const auto lock = use();
  if (communicator_ == nullptr) return ncclSuccess;
  const CurrentDevice current(device_);
  return ncclCommFinalize(communicator_);
}

void Communicator::destroy() {
  const auto lock = use();
  if (communicator_ == nullptr) return;
  const CurrentDevice current(device_);
  ncclCommDestroy(std::exchange(communicator_, nullptr));
}

void Communicator::abort() {
  ncclComm_t ended = nullptr;
  {
    const std::unique_lock lock(use_, kStuckCall);
    ended = std::exchange(communicator_, nullptr);
  }
  if (ended == nullptr) return;
  const CurrentDevice current(device_);
  ncclCommAbort(ended);
}

}  // namespace lockstep::comm
