#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/backoff.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/diagnostics/collective_span.h"
#include "lockstep/comm/diagnostics/recorder.h"
#include "lockstep/comm/shared/shared_memory.h"

namespace lockstep::comm {

/// Synchronizes the ranks of several processes on one machine, as `Rendezvous` does for threads.
///
/// A collective is `arrive`, work on what the others published, `depart`. A rank publishes a descriptor: bytes in
/// shared memory. Any error inside a collective (calls that differ, a rank that does not arrive, an exception) fails
/// the job, and with it every wait of every worker. Only a new job can go on.
///
/// A collective takes place for all ranks or for none: a rank that gives up ends the group, unless all have arrived.
/// Where it takes place, others write into the memory of a rank, so a rank leaves it only when all others are done,
/// even if it fails. It waits neither for workers that have died or left nor for those that do not respond.
///
/// Ranks are numbered through all workers, `ranks_per_worker` each. Each rank is used by one thread at a time.
class LOCKSTEP_API SharedRendezvous {
 public:
  /// All workers construct it with the same name.
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

  /// Returns the buffer, of `bytes` in shared memory, for the descriptor of the next call of a local rank.
  char* descriptor(int local, size_t bytes);

  /// Sets the run of the strategy that later calls belong to. Calls of different runs do not match.
  void begin_run(uint64_t run) { run_ = run; }

  /// A local rank's function has ended: it makes no more calls in this run. Where it has `failed`, the job fails
  /// shortly after.
  void leave(int local, bool failed);

  /// Publishes the descriptor and waits until all ranks have arrived with an equal call of the same run.
  void arrive(int local, const CollectiveCall& call, std::chrono::milliseconds timeout);
  /// Returns the descriptor of a rank. Valid between `arrive` and `depart`.
  const char* descriptor_of(int rank) const;
  /// Waits until every rank is done. There is no deadline: all ranks are at work, and the job detects those that die.
  void depart(int local);
  /// Ends the collective that a local rank is in, after `arrive`, by failing the job.
  void fail(int local, const std::string& reason);

  const Recorder& recorder() const { return recorder_; }

 private:
  struct Slot;
  struct Control;
  struct Own;

  /// Counts a rank as arrived; false where the group has ended.
  bool count_arrival();
  /// Ends the group, unless all ranks have arrived for the call that `target` counts.
  bool give_up(uint64_t target);
  void wait_for_arrivals(Own& own, const CollectiveCall& call, int rank, std::chrono::milliseconds limit);
  void tell_failure(int local, const std::string& reason);
  void wait_for_writers(int local);

  void check_alive(const CollectiveCall& call, int rank) const;
  void wait_for_reason(const CollectiveCall& call, int rank) const;
  void check_still_in_run(const CollectiveCall& call, int rank, uint64_t target) const;
  void explain_difference(int local, const CollectiveCall& call, size_t other);
  std::string missing(uint64_t target) const;
  template <typename Ready, typename Check>
  bool wait(Own& own, Ready ready, std::chrono::milliseconds limit, Check check);
  void ring();

  std::shared_ptr<SharedMemory> memory_;
  std::string name_;
  int ranks_per_worker_;
  std::chrono::milliseconds timeout_;
  uint64_t run_ = 0;
  uint64_t num_forks_ = 0;
  Control* control_ = nullptr;
  std::span<Slot> slots_;
  std::vector<Own> own_;
  Recorder recorder_;
  std::shared_ptr<void> watch_;
};

/// Pairs `arrive` with `depart`: fails the job when the work in between throws.
class LOCKSTEP_API SharedCollectiveScope {
 public:
  SharedCollectiveScope(SharedRendezvous& rendezvous, int local, const CollectiveCall& call,
                        std::chrono::milliseconds timeout);
  ~SharedCollectiveScope();
  SharedCollectiveScope(const SharedCollectiveScope&) = delete;
  SharedCollectiveScope& operator=(const SharedCollectiveScope&) = delete;

  void finish();

  /// Calls `work` and departs. What `work` throws is the reason of the job's failure.
  template <typename Work>
  void run(Work&& work) {
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
    finish();
  }

 private:
  void fail(const std::exception_ptr& cause);

  CollectiveSpan span_;
  SharedRendezvous& rendezvous_;
  int local_;
  bool finished_ = false;
};

}  // namespace lockstep::comm
