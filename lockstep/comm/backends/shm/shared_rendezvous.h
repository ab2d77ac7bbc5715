#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/backoff.h"
#include "lockstep/comm/backends/shm/shared_memory.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/recorder.h"

namespace lockstep::comm {

/// The place where the ranks of several processes on one machine meet: what `Rendezvous` is to threads.
///
/// A collective is `arrive`, work on what the others published, `depart`. What a rank publishes is bytes: its own
/// notice, written into shared memory. Whatever goes wrong inside a collective (a difference between calls, a rank that
/// does not come, an exception) fails the job, and with it every wait of every worker: there is no way back but a new
/// job.
///
/// Ranks are numbered through all workers, `ranks_per_worker` each. Each rank is used by one thread at a time.
class LOCKSTEP_API SharedRendezvous {
 public:
  /// All workers make it, with the same name.
  SharedRendezvous(std::shared_ptr<SharedMemory> memory, std::string name, int ranks_per_worker,
                   std::chrono::milliseconds timeout);
  ~SharedRendezvous();
  SharedRendezvous(const SharedRendezvous&) = delete;
  SharedRendezvous& operator=(const SharedRendezvous&) = delete;

  int size() const;
  int ranks_per_worker() const { return ranks_per_worker_; }
  int rank_of(int local) const { return memory_->job()->worker() * ranks_per_worker_ + local; }
  int worker_of(int rank) const { return rank / ranks_per_worker_; }
  const std::string& name() const { return name_; }
  SharedMemory& memory() const { return *memory_; }
  Job& job() const { return *memory_->job(); }

  /// Returns where to write the notice of the next call of a local rank: `bytes` in shared memory.
  char* notice(int local, size_t bytes);

  /// Which run of the strategy the calls from now on belong to: a call of another run is another call.
  void begin_run(uint64_t run) { run_ = run; }

  /// A local rank's function has ended: it makes no more calls in this run. Where it has `failed`, the job is about to.
  void leave(int local, bool failed);

  /// Publishes the notice and waits until all ranks have come with an equal call of the same run.
  void arrive(int local, const Call& call, std::chrono::milliseconds timeout);
  /// Between `arrive` and `depart`: the notice of a rank.
  const char* notice_of(int rank) const;
  /// Waits until every rank is done. No deadline: all are at work, and the job watches over those that die.
  void depart(int local);
  /// Ends the collective that a local rank is in by failing the job.
  void fail(int local, const std::string& reason);

  const Recorder& recorder() const { return recorder_; }

 private:
  struct Slot;
  struct Control;
  struct Own;

  void check_alive(const Call& call, int rank) const;
  void wait_for_reason(const Call& call, int rank) const;
  void check_still_in_run(const Call& call, int rank, uint64_t target) const;
  void explain_difference(int local, const Call& call, size_t other);
  std::string missing(uint64_t target) const;
  template <typename Ready, typename Check>
  bool wait(Own& own, Ready ready, std::chrono::milliseconds limit, Check check);
  void ring();

  std::shared_ptr<SharedMemory> memory_;
  std::string name_;
  int ranks_per_worker_;
  std::chrono::milliseconds timeout_;
  uint64_t run_ = 0;
  Control* control_ = nullptr;
  std::span<Slot> slots_;
  std::vector<Own> own_;
  Recorder recorder_;
  std::shared_ptr<void> watch_;
};

}  // namespace lockstep::comm
