#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/recorder.h"

namespace lockstep::comm {

class SharedRendezvous;

/// A group whose ranks are spread over the workers of a job, as one worker holds it: a handle for each of its own
/// ranks.
///
/// Worker w has the ranks w·r to w·r + r - 1, r being the number of ranks of each worker. A collective that fails on
/// one rank fails the job, and with it every wait on every worker.
class LOCKSTEP_API WorkerGroups {
 public:
  virtual ~WorkerGroups() = default;

  /// The engine that carries it: "shm", "gloo", "mpi", "nccl".
  virtual std::string_view engine() const = 0;
  /// One handle for each local rank.
  const std::vector<Group>& local() const { return local_; }
  /// Begins a run of a strategy, with all local ranks: calls of different runs do not match.
  virtual void begin_run(uint64_t run) = 0;
  /// Ends the run for a local rank: whoever waits for it in a collective of this run fails at once. A null `cause`
  /// means that its function returned.
  virtual void leave(int local, std::exception_ptr cause) = 0;
  /// Where the ranks meet, for those who lay open more than tensors; null where they have no memory in common.
  virtual SharedRendezvous* shared_rendezvous() const { return nullptr; }
  /// The last collectives of the local ranks.
  virtual const Recorder& recorder() const = 0;

 protected:
  std::vector<Group> local_;
};

}  // namespace lockstep::comm
