#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/job/admission.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/job/message.h"
#include "lockstep/comm/job/store.h"

namespace lockstep::comm::job {

/// The coordinator of a job, in worker 0's process: admits members, stores their values, watches their heartbeats and
/// tells all of them when one fails or leaves. It runs on a thread of its own, which ends when worker 0's member leaves
/// or closes its connection.
class Coordinator {
 public:
  /// Listens, and starts the thread. `first_member` is the far end of worker 0's own connection. CollectiveError where
  /// it cannot listen.
  Coordinator(const JobOptions& options, Socket first_member);
  /// Waits for the thread.
  ~Coordinator();

 private:
  struct Member {
    Channel channel{};
    std::string address{};
    std::string machine{};
    Clock::time_point last_heard{};
    size_t place = 0;
    bool has_joined = false;
    bool is_given_up = false;
  };

  void run();
  void take_turn();
  void end();

  void welcome(Joiner joiner);
  void complete();
  void report_progress();
  std::string progress() const;

  void read(int worker);
  void handle(int worker, Message message);
  void set(int worker, Message message);
  void get(int worker, const Message& message);
  void depart(int worker, const std::string& reason);
  void send_final_values();
  void lose(int worker, JobFailure::Kind kind, const std::string& what_happened);
  void fail(const JobFailure& failure);

  void watch(Clock::time_point now);
  Clock::time_point next_deadline() const;
  void send(int worker, const Message& message);
  void send_to_all(const std::string& content);
  std::string name(int worker) const;
  static bool is_watched(const Member& member) { return member.channel.is_open() && !member.is_given_up; }
  Member& member(int worker) { return members_[static_cast<size_t>(worker)]; }
  int num_workers() const { return static_cast<int>(members_.size()); }

  JobOptions options_;
  Admission admission_;
  std::vector<Member> members_;
  Store store_;
  bool is_complete_ = false;
  bool is_over_ = false;
  std::optional<JobFailure> failure_;
  Clock::time_point next_heartbeat_;
  Clock::time_point last_turn_;
  std::thread thread_;
};

}  // namespace lockstep::comm::job
