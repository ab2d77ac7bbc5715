#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Elastic jobs: who takes part changes only between numbered views.
namespace lockstep::comm::views {

using Time = std::chrono::steady_clock::time_point;

/// A worker in a view. Its number names its process for the whole job; its place in the view is its index there.
struct ViewMember {
  uint64_t worker = 0;
  /// host:port, where it listens if it is the first.
  std::string address;

  bool operator==(const ViewMember&) const = default;
};

/// Those who train together until the next view.
struct View {
  /// From 1 on; 0: there was none yet.
  uint64_t number = 0;
  std::vector<ViewMember> members{};

  bool operator==(const View&) const = default;
};

struct MembershipOptions {
  /// A view has at least so many members, unless a worker has finished: then the others may end with fewer.
  int at_least = 1;
  /// How long the other members of a view may take to ask for the next one after the first has asked or ended.
  std::chrono::milliseconds grace{60'000};
  /// The same for one that the others have reported as silent.
  std::chrono::milliseconds grace_of_silent{1'000};
  /// How long a process may take from its start until it asks for its first view.
  std::chrono::milliseconds start_time{300'000};
  /// How long workers that ask for their first view wait for others that have been started, before a view is
  /// interrupted.
  std::chrono::milliseconds settle_time{2'000};
};

/// Why a worker asks for the next view.
enum class AskReason : uint64_t {
  /// It has none.
  Start,
  /// Its view cannot go on.
  Failure,
  /// It was told that a change is pending; the state is in the memory of the members' machines.
  Change,
  /// It has left its view after a step whose state is on disk.
  Saved,
  End,
};

/// The rules by which views are issued, without sockets and clocks. A worker is started, asks for a view, is given one,
/// asks for the next one, and ends. View k+1 is issued when all members of view k that have not ended ask for it, and
/// the first view when all that were started do. Whoever does not ask in time is overdue and must be ended by force, so
/// that nobody waits for ever.
///
/// Memory that survives a worker belongs to its machine. A newcomer on a machine without a member in the view cannot
/// read the state there; with it in the view all would go back to the disk. Unless the state is on disk, it therefore
/// waits for the view after the next, where at least enough are there without it. Not thread-safe.
class LOCKSTEP_API Membership {
 public:
  explicit Membership(const MembershipOptions& options) : options_(options) {}

  /// The worker's process was started, on this machine. A number is used once.
  void start(uint64_t worker, Time now, uint64_t machine = 0);
  /// The worker asks for the next view. `silent`: a worker that it reports as silent. Unknown workers are ignored.
  void ask(uint64_t worker, const std::string& address, std::optional<uint64_t> silent, Time now,
           AskReason reason = AskReason::Start);
  /// The worker's process has ended; `finished`: because its work is done. Those who have not been in a view by then
  /// come too late, and are overdue.
  void end(uint64_t worker, bool finished, Time now);

  /// From now on a view may have fewer members than at least: the job is asked to end, and each of them has to save.
  void allow_fewer() { may_be_fewer_ = true; }

  /// Issues the next view where it is due. Members of the view before come first, in their order.
  std::optional<View> issue();
  /// Whether the members of the view should leave it after a step, because others wait for the next one.
  bool change_is_pending(Time now) const;
  /// Whether some of these others cannot read the memory of the members' machines.
  bool newcomers_need_disk() const;
  /// Those who must be ended by force.
  std::vector<uint64_t> overdue(Time now) const;
  /// When one of the answers above may change next without an event.
  Time next_deadline(Time now) const;

  const View& view() const { return view_; }
  bool has_finished() const { return has_finished_; }
  /// The workers that have not ended.
  int num_live() const { return static_cast<int>(workers_.size()); }
  bool is_in_view(uint64_t worker) const;
  bool asks(uint64_t worker) const;

 private:
  struct Worker {
    uint64_t machine = 0;
    bool asks = false;
    AskReason reason = AskReason::Start;
    std::string address{};
    Time asked{};
    /// When it is overdue.
    Time deadline = Time::max();
  };

  void urge_members(Time deadline);
  bool takes_newcomers() const { return !has_finished_ || view_.number == 0; }
  bool has_survivors() const;
  bool needs_disk(const Worker& worker) const { return view_.number > 0 && !machines_.contains(worker.machine); }
  int least() const { return has_finished_ || may_be_fewer_ ? 1 : options_.at_least; }

  MembershipOptions options_;
  std::map<uint64_t, Worker> workers_;
  View view_;
  /// Those of the members of the view, also of those that have ended.
  std::set<uint64_t> machines_;
  bool has_finished_ = false;
  bool may_be_fewer_ = false;
};

}  // namespace lockstep::comm::views
