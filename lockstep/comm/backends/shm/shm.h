#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backends/shm/shared_rendezvous.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep::comm {

/// Makes a group over the workers of one machine. Tensors that were made under `SharedAllocation` are reduced where
/// they lie, as between threads; others are copied into shared memory and back.
LOCKSTEP_API std::shared_ptr<WorkerGroups> make_shm_groups(std::shared_ptr<SharedRendezvous> rendezvous);

/// Pairs `arrive` with `depart`: fails the job when the work in between throws.
class SharedMeeting {
 public:
  SharedMeeting(SharedRendezvous& rendezvous, int local, const Call& call, std::chrono::milliseconds timeout);
  ~SharedMeeting();
  SharedMeeting(const SharedMeeting&) = delete;
  SharedMeeting& operator=(const SharedMeeting&) = delete;

  void finish();

 private:
  SharedRendezvous& rendezvous_;
  int local_;
  bool finished_ = false;
};

}  // namespace lockstep::comm
