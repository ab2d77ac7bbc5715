#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/recorder.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

class SharedRendezvous;

/// A group whose ranks are spread over the workers of a job. A worker has a handle for each of its own ranks.
///
/// Worker w has the ranks w·r to w·r + r - 1, where r is the number of ranks of each worker. A collective that fails on
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
  /// Ends the run for a local rank: ranks that wait for it in a collective of this run fail at once. A null `cause`
  /// means that its function returned.
  virtual void leave(int local, std::exception_ptr cause) = 0;
  /// No local rank is inside a run. Throws where work that they have queued on GPUs has failed; `asks`, such as "run",
  /// stands in the error.
  virtual void check_queued_work(const char* /*asks*/) {}
  /// The rendezvous of the ranks in shared memory, for callers that publish more than tensors; null where the workers
  /// share no memory.
  virtual SharedRendezvous* shared_rendezvous() const { return nullptr; }
  /// How many bytes the local ranks have sent to other workers by messages.
  virtual uint64_t bytes_sent() const { return 0; }
  /// The last collectives of the local ranks.
  virtual const Recorder& recorder() const = 0;

 protected:
  std::vector<Group> local_;
};

}  // namespace lockstep::comm
