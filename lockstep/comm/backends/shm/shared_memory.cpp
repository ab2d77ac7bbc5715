#include "lockstep/comm/backends/shm/shared_memory.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// What a worker says when it has mapped everybody's memory; anything else is the reason why it has not.
constexpr const char* kMapped = "mapped";

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::connect(const std::shared_ptr<Job>& job, const std::string& name,
                                                    std::chrono::milliseconds timeout, std::string& why_not) {
  if (!job->one_machine()) {
    why_not = "the workers are on several machines";
    return nullptr;
  }
  auto memory = std::make_shared<SharedMemory>();
  memory->job_ = job;
  std::string state = kMapped;
  memory->own_ = SharedArena::of_process(state);
  const auto offers = job->all_gather(name + "/offer", memory->own_ ? memory->own_->offer() : "", timeout);
  if (memory->own_ != nullptr) {
    state = kMapped;
    memory->own_base_ = memory->own_->base();
    try {
      for (int worker = 0; worker < job->num_workers(); ++worker) {
        const bool peer = worker != job->worker() && !offers[static_cast<size_t>(worker)].empty();
        memory->peers_.push_back(peer ? std::make_unique<PeerArena>(offers[static_cast<size_t>(worker)]) : nullptr);
      }
    } catch (const c10::Error& error) {
      state = error.what_without_backtrace();
    }
  }
  const auto states = job->all_gather(name + "/mapped", state, timeout);
  for (int worker = 0; worker < job->num_workers(); ++worker) {
    if (states[static_cast<size_t>(worker)] == kMapped) continue;
    why_not = c10::str(job->name(worker), ": ", states[static_cast<size_t>(worker)]);
    return nullptr;
  }
  return memory;
}

}  // namespace lockstep::comm
