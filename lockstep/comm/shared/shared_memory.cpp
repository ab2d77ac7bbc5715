#include "lockstep/comm/shared/shared_memory.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// What a worker announces when it has mapped all arenas; anything else is the reason why it has not.
constexpr const char* kMapped = "mapped";

/// Prepares the arena of this process for a job. Members of a job that has failed may still write into what they have
/// mapped, so the contents move to a file that they have not. Returns why that failed; empty on success.
std::string begin_job(SharedArena& arena, const std::shared_ptr<Job>& job) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Job>> offered;
  const std::lock_guard lock(mutex);
  const auto is_well = [](const std::weak_ptr<Job>& weak) {
    const auto other = weak.lock();
    return other && other->failure() == nullptr;
  };
  const bool used_by_others = !offered.empty() && std::none_of(offered.begin(), offered.end(), is_well);
  if (used_by_others || !arena.can_be_offered()) {
    std::string reason = arena.renew();
    if (!reason.empty()) return reason;
    offered.clear();
  }
  std::erase_if(offered, [&](const std::weak_ptr<Job>& weak) { return weak.expired() || weak.lock() == job; });
  offered.push_back(job);
  return "";
}

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
  if (memory->own_ != nullptr) {
    if (auto reason = begin_job(*memory->own_, job); !reason.empty()) {
      state = std::move(reason);
      memory->own_ = nullptr;
    }
  }
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
