#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/recorder.h"

namespace lockstep::comm {

/// The place where the ranks of one process meet: every collective, merge and update of a group goes through it.
///
/// One collective is `arrive`, work on what the others published, `depart`:
///   1. each rank publishes a pointer to its Call and waits for all others (spinning briefly, then asleep);
///   2. all fingerprints are compared; a difference is a CollectiveError on every rank that names both calls;
///   3. between arrive and depart a rank may read what any Call refers to, and write what the collective's rule gives
///   it;
///   4. after depart nobody looks at this rank's Call any more.
///
/// No wait is endless: it ends when all have come, when a rank aborts, when a rank leaves (its function returned or
/// threw, so it will never come), or at the deadline. Thread-safe; each rank is used by one thread at a time.
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
  std::span<const Call* const> arrive(int rank, const Call& call, std::chrono::milliseconds timeout = {});

  /// Waits until every rank has finished with the calls that `arrive` returned, and reports if one of them failed.
  /// All ranks are at work by now and may still read this one's tensors, so this wait has no deadline; it is logged
  /// once a minute.
  void depart(int rank);

  /// Marks `rank` as gone for this round: others that wait for it fail at once, naming it and the reason.
  /// A null `cause` means that its function returned normally.
  void leave(int rank, std::exception_ptr cause = nullptr);

  /// Makes every wait, now and later, fail until `reset`.
  void abort(std::exception_ptr cause);

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
class LOCKSTEP_API Meeting {
 public:
  Meeting(Rendezvous& rendezvous, int rank, const Call& call, std::chrono::milliseconds timeout = {});
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::span<const Call* const> calls() const { return calls_; }

  /// Departs now and reports a peer's failure; without it the destructor departs silently.
  void finish();

 private:
  Rendezvous& rendezvous_;
  int rank_;
  std::span<const Call* const> calls_;
  bool finished_ = false;
  int exceptions_ = 0;
};

}  // namespace lockstep::comm
