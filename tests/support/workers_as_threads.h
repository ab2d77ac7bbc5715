#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>

#include "lockstep/comm/diagnostics/worker_error.h"
#include "lockstep/comm/engines/shm/shm.h"
#include "lockstep/comm/messages/message_groups.h"

/// Workers of a job as threads of one process, for sanitizers, with a transport inside the process.
namespace lockstep::tests {

/// What all members of a job in one process share.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::map<int, std::string> reports;
  std::optional<comm::JobFailure> failure;
  std::map<int, std::function<void()>> callbacks;
  int next_callback = 0;
};

class BoardJob final : public comm::Job {
 public:
  BoardJob(std::shared_ptr<Board> board, int worker, int num_workers) : board_(std::move(board)), worker_(worker) {
    for (int i = 0; i < num_workers; ++i) names_.push_back("worker " + std::to_string(i));
  }

  int worker() const override { return worker_; }
  int num_workers() const override { return static_cast<int>(names_.size()); }
  const std::string& name(int worker) const override { return names_.at(static_cast<size_t>(worker)); }
  const std::string& local_address() const override { return names_.front(); }
  bool one_machine() const override { return true; }

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(board_->mutex);
    board_->values[key] = value;
    board_->changed.notify_all();
  }

  void drop(const std::string& key) override {
    const std::lock_guard lock(board_->mutex);
    board_->values.erase(key);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(board_->mutex);
    const bool found = board_->changed.wait_for(lock, timeout, [&] { return board_->values.count(key) > 0; });
    LOCKSTEP_CHECK_COLLECTIVE(found, "[job] nobody has set it: key=", key);
    return board_->values.at(key);
  }

  const comm::JobFailure* failure() const override {
    const std::lock_guard lock(board_->mutex);
    return board_->failure ? &*board_->failure : nullptr;
  }
  bool has_left(int) const override { return false; }

  void fail(const std::string& reason) override {
    fail({comm::JobFailure::Kind::Failed, worker_, names_[static_cast<size_t>(worker_)] + " failed: " + reason});
  }
  void fail_by_mismatch(const std::string& reason) override { fail({comm::JobFailure::Kind::Mismatch, -1, reason}); }

  void report(const std::string& report) override {
    const std::lock_guard lock(board_->mutex);
    board_->reports[worker_] = report;
  }
  std::string last_report(int worker) const override {
    const std::lock_guard lock(board_->mutex);
    const auto found = board_->reports.find(worker);
    return found == board_->reports.end() ? "" : found->second;
  }

  std::shared_ptr<void> on_change(std::function<void()> callback) override {
    const std::lock_guard lock(board_->mutex);
    const int id = board_->next_callback++;
    board_->callbacks[id] = std::move(callback);
    return {nullptr, [board = board_, id](void*) {
              const std::lock_guard lock(board->mutex);
              board->callbacks.erase(id);
            }};
  }

 private:
  void fail(comm::JobFailure failure) {
    std::map<int, std::function<void()>> callbacks;
    {
      const std::lock_guard lock(board_->mutex);
      if (board_->failure) return;
      board_->failure = std::move(failure);
      callbacks = board_->callbacks;
    }
    for (const auto& [id, callback] : callbacks) callback();
  }

  std::shared_ptr<Board> board_;
  int worker_;
  std::vector<std::string> names_;
};

/// Messages through queues in memory.
struct Mail {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> queues;
  std::optional<std::string> aborted;
  /// Of all messages.
  size_t sent_bytes = 0;
};

class MailTransport final : public comm::Transport {
 public:
  MailTransport(std::shared_ptr<Mail> mail, int worker, int num_workers, int num_lanes)
      : mail_(std::move(mail)), worker_(worker), num_workers_(num_workers), num_lanes_(num_lanes) {}

  std::string_view name() const override { return "mail"; }
  int worker() const override { return worker_; }
  int num_workers() const override { return num_workers_; }
  int num_lanes() const override { return num_lanes_; }

  void exchange(int lane, std::span<const comm::Outgoing> outgoing, std::span<const comm::Incoming> incoming,
                std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mail_->mutex);
    for (const auto& message : outgoing) {
      const char* data = static_cast<const char*>(message.data);
      mail_->sent_bytes += message.bytes;
      if (message.bytes > 0) mail_->queues[{lane, worker_, message.peer}].emplace_back(data, data + message.bytes);
    }
    mail_->changed.notify_all();
    for (const auto& message : incoming) {
      if (message.bytes == 0) continue;
      auto& queue = mail_->queues[{lane, message.peer, worker_}];
      const bool came = mail_->changed.wait_for(lock, timeout, [&] { return mail_->aborted || !queue.empty(); });
      LOCKSTEP_CHECK_COLLECTIVE(!mail_->aborted, "[mail] aborted: ", *mail_->aborted);
      LOCKSTEP_CHECK_COLLECTIVE(came, "[mail] nothing came from worker ", message.peer);
      LOCKSTEP_CHECK_COLLECTIVE(queue.front().size() == message.bytes, "[mail] bytes=", queue.front().size(),
                                ", expected ", message.bytes);
      std::memcpy(message.data, queue.front().data(), message.bytes);
      queue.pop_front();
    }
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mail_->mutex);
    mail_->aborted = reason;
    mail_->changed.notify_all();
  }

 private:
  std::shared_ptr<Mail> mail_;
  int worker_;
  int num_workers_;
  int num_lanes_;
};

enum class EngineKind { Shm, Messages };

/// Makes the groups of one worker; all workers do so at once.
inline std::shared_ptr<comm::WorkerGroups> make_groups(EngineKind engine, const std::shared_ptr<comm::Job>& job,
                                                       const std::shared_ptr<Mail>& mail, int ranks_per_worker,
                                                       std::chrono::milliseconds timeout) {
  if (engine == EngineKind::Messages) {
    auto transport = std::make_shared<MailTransport>(mail, job->worker(), job->num_workers(), ranks_per_worker);
    return comm::make_message_groups(job, transport, "test", ranks_per_worker, timeout);
  }
  std::string why_not;
  auto memory = comm::SharedMemory::connect(job, "memory", timeout, why_not);
  LOCKSTEP_CHECK_COLLECTIVE(memory != nullptr, why_not);
  return comm::make_shm_groups(std::make_shared<comm::SharedRendezvous>(memory, "test", ranks_per_worker, timeout));
}

/// Runs `body(group)` for every rank of `num_workers` workers with `ranks_per_worker` each, as replicas do, and returns
/// what each rank threw.
inline std::vector<std::exception_ptr> run_worker_ranks(EngineKind engine, int num_workers, int ranks_per_worker,
                                                        const std::function<void(const comm::Group&)>& body,
                                                        std::chrono::milliseconds timeout = std::chrono::seconds(60),
                                                        const std::shared_ptr<Mail>& mail = std::make_shared<Mail>()) {
  const auto board = std::make_shared<Board>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_workers * ranks_per_worker));
  std::vector<std::thread> workers;
  for (int worker = 0; worker < num_workers; ++worker) {
    workers.emplace_back([&, worker] {
      const auto job = std::make_shared<BoardJob>(board, worker, num_workers);
      const auto groups = make_groups(engine, job, mail, ranks_per_worker, timeout);
      groups->begin_run(1);
      std::vector<std::thread> ranks;
      for (int local = 0; local < ranks_per_worker; ++local) {
        ranks.emplace_back([&, local] {
          at::set_num_threads(1);
          auto& error = errors[static_cast<size_t>(worker * ranks_per_worker + local)];
          try {
            body(groups->local()[static_cast<size_t>(local)]);
          } catch (const std::exception& thrown) {
            error = std::current_exception();
            job->fail(thrown.what());
          }
          groups->leave(local, error);
        });
      }
      for (auto& rank : ranks) rank.join();
      job->all_gather("end", "", std::chrono::minutes(5));
    });
  }
  for (auto& worker : workers) worker.join();
  return errors;
}

}  // namespace lockstep::tests
