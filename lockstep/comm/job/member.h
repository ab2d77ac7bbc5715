#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "lockstep/comm/job/callbacks.h"
#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/job/joiner.h"
#include "lockstep/comm/job/message.h"

namespace lockstep::comm::job {

/// The membership of a process: its connection to the coordinator, and a thread that reads it and sends heartbeats.
class Member final : public Job {
 public:
  Member(const JobOptions& options, Entrance entrance);
  ~Member() override;

  /// Waits until all workers have joined; false where the connection broke before. CollectiveError at the deadline, or
  /// where the coordinator turns this member away.
  bool wait_for_all(Clock::time_point deadline);
  /// Leaves the job and ends the thread. Further calls do nothing. `status` is the exit status of a process that exits:
  /// other than 0 it is a failure.
  void leave(int status = 0);

  int worker() const override { return options_.worker; }
  int num_workers() const override { return static_cast<int>(options_.addresses.size()); }
  const std::string& name(int worker) const override;
  const std::string& local_address() const override { return local_address_; }
  bool one_machine() const override { return one_machine_; }
  void set(const std::string& key, const std::string& value) override;
  void drop(const std::string& key) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  const JobFailure* failure() const override { return failure_.load(std::memory_order_acquire); }
  bool has_left(int worker) const override;
  void fail(const std::string& reason) override;
  void fail_by_mismatch(const std::string& reason) override;
  void report(const std::string& report) override;
  std::string last_report(int worker) const override;
  std::shared_ptr<void> on_change(std::function<void()> callback) override;

 private:
  // A request to the coordinator that is not answered yet.
  struct Request {
    bool is_answered = false;
    Message answer{};
  };

  void run();
  // These are called with the lock held.
  void read();
  void handle_received();
  void handle(const Message& message);
  void complete(const Message& message);
  void lose_coordinator(JobFailure::Kind kind, const std::string& what_happened);
  void set_failure(JobFailure failure);
  void watch(Clock::time_point now);
  void send(const Message& message);
  bool is_cut_off() const { return !channel_.is_open() || failure() != nullptr; }

  void wake();
  std::optional<std::string> final_value(const std::string& key) const;
  void check_process(const char* operation, const std::string& key) const;
  void check_usable(const char* operation, const std::string& key) const;
  // Returns false at the deadline, and where no answer can arrive any more.
  bool ask(Message message, Clock::time_point deadline, Message& answer);

  const JobOptions options_;
  const pid_t process_;
  std::unique_ptr<Coordinator> coordinator_;
  const std::chrono::milliseconds heartbeat_interval_;
  const std::chrono::milliseconds heartbeat_timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Channel channel_;
  std::map<uint64_t, Request*> requests_;
  uint64_t last_request_ = 0;
  std::map<std::string, std::string> final_values_;
  std::map<int, std::string> reports_;
  std::string progress_;
  std::string leave_reason_;
  std::unique_ptr<Message> turned_away_;
  bool is_complete_ = false;
  bool is_leaving_ = false;
  Clock::time_point leave_deadline_{};
  Clock::time_point last_heard_;
  Clock::time_point last_turn_;
  Clock::time_point next_heartbeat_;

  // Constant after all workers have joined.
  std::vector<std::string> names_;
  std::string local_address_;
  bool one_machine_ = true;

  std::unique_ptr<JobFailure> first_failure_;
  std::atomic<const JobFailure*> failure_{nullptr};
  std::vector<std::atomic<bool>> left_;
  std::atomic<bool> has_anybody_left_{false};
  Callbacks callbacks_;
  Socket wake_;
  std::mutex leave_mutex_;
  std::thread thread_;
};

}  // namespace lockstep::comm::job
