#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/views/membership.h"

namespace lockstep::comm::views {

/// What a worker tells when it asks for the next view.
struct Question {
  AskReason reason = AskReason::Start;
  /// Its last finished step; -1: none.
  int64_t step = -1;
  /// Why the view cannot go on.
  std::string failure{};
  /// The index, in the view, of a worker that was reported as silent.
  std::optional<int> silent{};
};

/// A view as one of its members sees it.
struct OwnView {
  View view;
  /// The place of this worker in it.
  int index = 0;
  /// The secret of this view's job, which all members derive from that of the launcher; empty where there is none.
  std::string token{};
};

/// A worker's connection to the launcher that issues views. While a member of the view has ended, or cannot go on, the
/// process joins no job (close_joining): it would wait for that member. Thread-safe.
class LOCKSTEP_API ViewClient {
 public:
  /// Connects to the launcher as worker `number`. CollectiveError says why it cannot.
  ViewClient(const std::string& address, uint64_t number, std::string token);
  ~ViewClient();

  /// Asks for the next view, and waits for it. CollectiveError where there will be none, and says why.
  OwnView next(const Question& question);
  /// From now on `stop` is asked all the time, by another thread; empty: no more. Where it returns true, `next` and
  /// waits for other workers to join end with a CollectiveError that says that this worker was asked to end.
  void watch(std::function<bool()> stop);
  /// Whether the launcher wants the members to leave the current view after a step. Costs one load.
  bool change_is_pending() const;
  /// Whether those who wait for that change cannot read the memory of the members' machines.
  bool change_needs_disk() const;
  /// Tells the launcher that this worker goes on after `step`, whose state came from `source`. Does not wait.
  void resumed(int64_t step, const std::string& source);
  /// Why the launcher says that the current view cannot go on; empty while it says nothing.
  std::string loss() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm::views
