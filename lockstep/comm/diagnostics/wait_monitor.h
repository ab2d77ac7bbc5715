#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/recorder.h"
#include "lockstep/comm/diagnostics/straggler.h"
#include "lockstep/comm/diagnostics/wait_report.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// The runs of a team of local ranks, as the monitor sees them. Written by the threads of the ranks.
class LOCKSTEP_API WatchedRuns {
 public:
  /// `outer` are the runs in whose merge functions, on the thread of rank 0, these ones are made; null for none.
  explicit WatchedRuns(int ranks, const WatchedRuns* outer = nullptr)
      : outer_(outer), ranks_(static_cast<size_t>(ranks)) {}

  void begin(uint64_t run) { run_.store(run); }
  /// A rank has ended the run.
  void leave(int rank) { ranks_[static_cast<size_t>(rank)].left_run.store(run_.load()); }
  void end() { run_.store(0); }

  /// For as long as it lives, `rank` waits for the thread that sends its gradients.
  class GradientWait {
   public:
    GradientWait(WatchedRuns* runs, int rank)
        : flag_(runs == nullptr ? nullptr : &runs->ranks_[static_cast<size_t>(rank)].waits_for_gradients) {
      if (flag_ != nullptr) flag_->store(true);
    }
    ~GradientWait() {
      if (flag_ != nullptr) flag_->store(false);
    }
    GradientWait(const GradientWait&) = delete;
    GradientWait& operator=(const GradientWait&) = delete;

   private:
    std::atomic<bool>* flag_;
  };

  /// The run that is being made; 0 for none.
  uint64_t current() const { return run_.load(); }
  uint64_t left_run(size_t rank) const { return ranks_[rank].left_run.load(); }
  bool waits_for_gradients(size_t rank) const { return ranks_[rank].waits_for_gradients.load(); }
  size_t num_ranks() const { return ranks_.size(); }
  const WatchedRuns* outer() const { return outer_; }

 private:
  struct Rank {
    std::atomic<uint64_t> left_run{0};
    std::atomic<bool> waits_for_gradients{false};
  };

  const WatchedRuns* outer_;
  std::atomic<uint64_t> run_{0};
  std::vector<Rank> ranks_;
};

/// What a watched group is for.
enum class GroupUse {
  /// The replicas of all workers, each on its own thread.
  Replicas,
  /// The replicas of this worker.
  LocalReplicas,
  /// Gradients of all replicas, which threads send while the replicas compute.
  Gradients,
  /// One rank of each worker, outside of replicas.
  Workers,
};

/// Ends a job whose workers wait for each other in different collectives, long before the timeout of collectives.
///
/// A thread looks at the recorders of all groups a few times a second. When all ranks of this worker have waited for
/// some time, it reports that to the other workers. Worker 0 compares the reports, and fails the job when the waits
/// cannot end. A worker that computes or reads data is slow, which is no failure. Costs nothing in collectives.
///
/// The thread also counts at how many of its looks the worker was waiting, and reports that a few times in a window.
/// Worker 0 compares the workers, and warns where the others wait for one of them (straggler.h). Where several threads
/// of a program make runs, this is not measured.
class LOCKSTEP_API WaitMonitor {
 public:
  explicit WaitMonitor(std::shared_ptr<Job> job, StragglerOptions stragglers = StragglerOptions::from_environment());
  ~WaitMonitor();
  WaitMonitor(const WaitMonitor&) = delete;
  WaitMonitor& operator=(const WaitMonitor&) = delete;

  struct Group {
    /// The same on all workers, unless it is local.
    std::string name;
    GroupUse use = GroupUse::Workers;
    int ranks = 1;
    const Recorder* recorder = nullptr;
    /// The runs of its ranks; null for GroupUse::Workers.
    const WatchedRuns* runs = nullptr;
  };
  /// Watches a group until the handle is destroyed.
  std::shared_ptr<void> watch(Group group);

  /// The calling thread begins a run. Where several threads of the program do, nothing is reported: one of them may
  /// compute while another one waits.
  void note_run();
  /// The calling thread makes a collective outside of replicas.
  void note_call();

 private:
  struct Snapshot {
    WaitReport report;
    std::chrono::nanoseconds youngest_wait{};
  };

  void serve();
  void look();
  void measure_pace();
  void give_up_pace();
  void send_report();
  uint64_t ended_runs() const;
  Snapshot read_groups() const;
  bool all_wait(const WaitReport& report) const;
  bool rank_waits(const WaitReport& report, const WatchedRuns& runs, size_t rank) const;
  bool workers_wait(const WaitReport& report) const;
  std::vector<std::optional<WaitReport>> last_reports(WaitReport own) const;
  void add_caller();

  const std::shared_ptr<Job> job_;
  const pid_t process_;
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::list<Group> groups_;
  std::vector<std::thread::id> callers_;
  /// The last report in which all ranks waited, with the last pace.
  WaitReport to_send_;
  std::string last_sent_;
  const StragglerOptions stragglers_;
  PaceWindow window_;
  StragglerWarnings warnings_;
  std::chrono::steady_clock::time_point next_pace_;
  std::thread thread_;
};

}  // namespace lockstep::comm
