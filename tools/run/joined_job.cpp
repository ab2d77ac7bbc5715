#include "tools/run/joined_job.h"

#include <charconv>
#include <csignal>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <utility>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/views/launcher_link.h"
#include "tools/run/local_workers.h"
#include "tools/run/restart_policy.h"
#include "tools/run/run_attempt.h"
#include "tools/run/run_environment.h"

namespace lockstep::tools {
namespace {

using comm::views::LauncherLink;
using comm::views::LauncherOrder;
using std::chrono::milliseconds;

/// Reads the number in the name of a worker.
int place_of(const std::string& name) {
  int place = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == name.data() + name.size() && place >= 0,
                       "[run] the other launcher must name workers by numbers: name=", name);
  return place;
}

class JoinedLauncher {
 public:
  JoinedLauncher(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder,
                 std::string token, std::unique_ptr<LauncherLink> link)
      : options_(options),
        folder_(folder),
        token_(std::move(token)),
        link_(std::move(link)),
        workers_(file, options.command, options.prefix, watchdog) {}

  JobResult run(const SignalQueue& signals) {
    link_->offer(options_.num_workers);
    while (!is_over_ || !workers_.all_gone()) {
      const milliseconds limit(workers_.is_calm() ? 500 : 10);
      for (const LauncherOrder& order : link_->wait(signals.descriptor(), limit)) obey(order);
      for (int signal = signals.wait(milliseconds(0)); signal != 0; signal = signals.wait(milliseconds(0))) {
        if (signal != SIGCHLD) interrupt(signal);
      }
      for (const LocalWorkers::End& end : workers_.look()) {
        if (result_.interrupted_by != 0 && end.status != 0 && !result_.failure) note_failure(end.status, end.place);
        link_->exited(end.number, end.status, folder_.take_steps(end.number).finished);
      }
      link_->set_progress(folder_.highest_step());
      if (result_.interrupted_by != 0 && workers_.all_gone()) is_over_ = true;
    }
    // The other launcher reads the last messages before the connection ends.
    link_->wait(-1, milliseconds(100));
    return result_;
  }
  void finish_output() { workers_.finish_output(); }

 private:
  void obey(const LauncherOrder& order) {
    switch (order.kind) {
      case LauncherOrder::Kind::Start:
        start(order);
        break;
      case LauncherOrder::Kind::Signal:
        workers_.signal(order.worker, static_cast<int>(order.number));
        break;
      case LauncherOrder::Kind::Finish:
        if (order.number != 0 && !result_.failure) note_failure(W_EXITCODE(static_cast<int>(order.number), 0), 0);
        end();
        break;
      case LauncherOrder::Kind::Lost:
        if (is_over_) break;
        say("the connection to " + options_.join + " is lost: " + order.text);
        if (result_.interrupted_by == 0) note_failure(W_EXITCODE(1, 0), 0);
        end();
        break;
    }
  }

  void start(const LauncherOrder& order) {
    if (result_.interrupted_by != 0) {
      link_->exited(order.worker, W_EXITCODE(kPreempted, 0), -1);
      return;
    }
    std::vector<std::string> variables =
        elastic_variables(options_.join, order.worker, static_cast<int>(order.number), options_.token_file, token_);
    for (std::string& variable : folder_.variables(order.worker)) variables.push_back(std::move(variable));
    try {
      workers_.start(order.worker, place_of(order.text), variables);
    } catch (const c10::Error& error) {
      say("worker " + order.text + " cannot be started: " + error.what_without_backtrace());
      link_->exited(order.worker, W_EXITCODE(127, 0), -1);
    }
  }

  void interrupt(int signal) {
    if (result_.interrupted_by != 0) {
      workers_.kill_all();
      return;
    }
    result_.interrupted_by = signal;
    link_->offer(0);
    workers_.signal_all(signal);
  }

  void end() {
    is_over_ = true;
    workers_.stop_all();
  }

  void note_failure(int status, int worker) {
    result_.failure = WorkerFailure{worker, status, std::chrono::system_clock::now(), {}};
  }

  const JobOptions& options_;
  JobFolder& folder_;
  std::string token_;
  std::unique_ptr<LauncherLink> link_;
  LocalWorkers workers_;
  JobResult result_;
  bool is_over_ = false;
};

}  // namespace

JobResult run_joined(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder) {
  // Signals end the launcher while it connects, which may take long.
  std::string token = launcher_token(options.token_file, /*required=*/true);
  auto link = std::make_unique<LauncherLink>(options.join, token, env::seconds("LOCKSTEP_JOIN_TIMEOUT"));
  std::optional<JoinedLauncher> launcher;
  JobResult result;
  {
    const SignalQueue signals;  // before any thread: all of them block these signals
    launcher.emplace(options, file, watchdog, folder, std::move(token), std::move(link));
    result = launcher->run(signals);
  }
  launcher->finish_output();
  return result;
}

}  // namespace lockstep::tools
