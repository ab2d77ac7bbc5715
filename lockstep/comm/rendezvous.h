#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/diagnostics/collective_span.h"
#include "lockstep/comm/diagnostics/recorder.h"

namespace lockstep::comm {

/// Synchronizes the ranks of one process: every collective, merge and update of a group goes through it.
///
/// One collective is `arrive`, work on what the others published, `depart`:
///   1. each rank publishes a pointer to its CollectiveCall and waits for all others (spins, then sleeps);
///   2. all fingerprints are compared; a difference is a CollectiveError on every rank that names both calls;
///   3. between arrive and depart a rank may read what any CollectiveCall refers to, and write what the collective's
///   rule gives it;
///   4. after depart nobody looks at this rank's CollectiveCall any more.
///
/// A wait in `arrive` ends when all ranks have arrived, when a rank aborts, when a rank leaves (its function returned
/// or threw), or at the deadline. Thread-safe; each rank is used by one thread at a time.
class LOCKSTEP_API Rendezvous {
 public:
  explicit Rendezvous(int size, std::string name = "local");
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int size() const;
  const std::string& name() const;

  /// Waits until every rank has arrived with an equal call, and returns all calls in rank order.
  /// `timeout` of zero takes the default of `set_default_timeout`.
  std::span<const CollectiveCall* const> arrive(int rank, const CollectiveCall& call,
                                                std::chrono::milliseconds timeout = {});

  /// Waits until every rank has finished with the calls that `arrive` returned. CollectiveError where one of them
  /// failed. Other ranks may still read this one's tensors, so this wait has no deadline; it is logged once a minute.
  void depart(int rank);

  /// Marks `rank` as gone for this round: ranks that wait for it fail at once with its reason.
  /// A null `cause` means that its function returned normally.
  void leave(int rank, std::exception_ptr cause = nullptr);

  /// Makes every wait, now and later, fail until `reset`.
  void abort(std::exception_ptr cause);
  /// Returns what `abort` was called with first; null while nobody has called it since `reset`.
  std::exception_ptr abort_cause() const;

  /// Starts a new round in which all ranks take part again. No rank may be inside a collective.
  void reset();

  void set_default_timeout(std::chrono::milliseconds timeout);

  /// The last collectives of every rank, always on.
  const Recorder& recorder() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Pairs `arrive` with `depart`, also when the work in between throws (the group is then aborted with that error).
class LOCKSTEP_API CollectiveScope {
 public:
  CollectiveScope(Rendezvous& rendezvous, int rank, const CollectiveCall& call, std::chrono::milliseconds timeout = {});
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

  std::span<const CollectiveCall* const> calls() const { return calls_; }

  /// Departs now and reports a peer's failure; without it the destructor departs silently.
  void finish();

  /// Calls `work` and departs. What `work` throws is the cause that the errors of all other ranks name.
  template <typename Work>
  void run(Work&& work) {
    try {
      work();
    } catch (...) {
      rendezvous_.abort(std::current_exception());
      throw;
    }
    finish();
  }

 private:
  CollectiveSpan span_;
  Rendezvous& rendezvous_;
  int rank_;
  std::span<const CollectiveCall* const> calls_;
  bool finished_ = false;
  int exceptions_ = 0;
};

}  // namespace lockstep::comm
