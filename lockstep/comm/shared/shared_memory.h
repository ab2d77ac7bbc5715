#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/job/job.h"
#include "lockstep/comm/shared/arena.h"

namespace lockstep::comm {

/// The arenas of all workers of a job on one machine, each mapped into this process.
class LOCKSTEP_API SharedMemory {
 public:
  /// All workers call it with the same name. Null on all workers, with the reason, where one cannot map the arena of
  /// another.
  static std::shared_ptr<SharedMemory> connect(const std::shared_ptr<Job>& job, const std::string& name,
                                               std::chrono::milliseconds timeout, std::string& why_not);

  SharedArena& own() const { return *own_; }
  const std::shared_ptr<Job>& job() const { return job_; }
  /// Returns the address, in this process, of the byte at `offset` of a worker's arena.
  char* at(int worker, uint64_t offset) const {
    return worker == job_->worker() ? own_base_ + offset : peers_[static_cast<size_t>(worker)]->at(offset);
  }

 private:
  std::shared_ptr<Job> job_;
  SharedArena* own_ = nullptr;
  char* own_base_ = nullptr;
  /// By worker; null for this one.
  std::vector<std::unique_ptr<PeerArena>> peers_;
};

}  // namespace lockstep::comm
