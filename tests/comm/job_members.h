#pragma once

#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/comm/job/join.h"

/// Members of jobs for tests: as threads of this process, and as processes of their own.
namespace lockstep::comm::test {

using namespace std::chrono_literals;

/// Limit for what must happen, on a machine under load.
constexpr auto kPatience = 60s;

/// Returns `127.0.0.1:port`, with a free port, for the first worker, and empty addresses for the others.
std::vector<std::string> free_addresses(int num_workers, const std::string& host = "127.0.0.1");

/// Options of a job at a free address; `worker` is for the test to set.
JobOptions options_for(int num_workers);
/// Returns these options with another worker's number.
JobOptions as_worker(JobOptions options, int worker);

/// Joins as this worker on a thread.
std::future<std::shared_ptr<Job>> join_later(const JobOptions& options, int worker);
/// Joins as all workers.
std::vector<std::shared_ptr<Job>> join_all(const JobOptions& options);

/// Returns what `body` says when it throws this type; anything else is a failure of the test.
template <class Error, class F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// Waits until the condition holds; returns whether it does.
template <class F>
bool eventually(F&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(2ms);
  return condition();
}

/// A process; killed at the end of its scope.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int id() const { return id_; }
  void send_signal(int signal) const { kill(id_, signal); }
  /// Returns the next line that it prints; "" at the end of its output or at the time limit.
  std::string read_line();
  /// Waits for its end; returns its exit status, or minus its signal.
  int wait();

 private:
  int id_ = -1;
  int output_ = -1;
};

/// A member in a process of its own: this program, called with `--member`. It prints "joined", and " across
/// machines" where they are several, or its error; then it follows its task:
///   watch    prints the first failure as "kind worker reason", and ends well
///   exit N   exits with status N while the job is not destroyed, when the key "go/" and its number is set
std::vector<std::string> member_command(const JobOptions& options, const std::string& task);
/// Runs such a member; for `main`.
int run_member(const std::vector<std::string>& arguments);

/// A worker of an elastic job without a token, in a process of its own: this program, called with `--view-worker`. It
/// asks for its first view.
std::vector<std::string> view_worker_command(const std::string& address, uint64_t number);

}  // namespace lockstep::comm::test
