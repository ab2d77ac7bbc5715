#include "tools/run/local_workers.h"

#include <algorithm>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "tools/run/run_environment.h"

namespace lockstep::tools {
namespace {

/// How long a process may take to end after SIGTERM.
constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

LocalWorkers::LocalWorkers(std::string file, std::vector<std::string> command, bool prefix, Watchdog& watchdog)
    : file_(std::move(file)), command_(std::move(command)), prefix_(prefix), watchdog_(watchdog) {}

void LocalWorkers::start(uint64_t number, int place, const std::vector<std::string>& changes) {
  members_.push_back({number, place, Worker(file_, command_, changed_environment(changes)), Clock::now()});
  Worker& worker = members_.back().worker;
  watchdog_.guard(worker.session());
  const auto prefix = [&](int target) { return prefix_ ? worker_prefix(place, target) : std::string(); };
  std::vector<OutputStream> streams;
  streams.push_back({std::move(worker.output), STDOUT_FILENO, prefix(STDOUT_FILENO), ""});
  streams.push_back({std::move(worker.errors), STDERR_FILENO, prefix(STDERR_FILENO), ""});
  output_.add(std::move(streams));
}

std::vector<LocalWorkers::End> LocalWorkers::look() {
  std::vector<End> ends;
  std::erase_if(members_, [&](Member& member) { return look_after(member, ends); });
  reap_orphans();
  return ends;
}

bool LocalWorkers::look_after(Member& member, std::vector<End>& ends) {
  if (!member.ended) {
    if (const auto status = member.worker.status()) {
      member.ended = true;
      ends.push_back({member.number, member.place, *status, Clock::now() - member.start});
    }
  }
  if (member.ended && !member.worker.lives()) {
    watchdog_.release(member.worker.session());
    member.worker.end();
    return true;
  }
  if (member.kill_at && Clock::now() >= *member.kill_at) {
    member.worker.signal(SIGKILL);
  } else if (member.ended && !member.kill_at) {
    ask_to_end(member);  // processes that the worker started
  }
  return false;
}

void LocalWorkers::signal(uint64_t number, int signal) {
  for (const Member& member : members_) {
    if (member.number == number) member.worker.signal(signal);
  }
}

void LocalWorkers::signal_all(int signal) {
  for (const Member& member : members_) member.worker.signal(signal);
}

void LocalWorkers::stop_all() {
  for (Member& member : members_) {
    if (!member.ended) ask_to_end(member);
  }
}

void LocalWorkers::kill_all() {
  for (Member& member : members_) member.kill_at = Clock::now();
}

void LocalWorkers::ask_to_end(Member& member) {
  member.worker.signal(SIGTERM);
  member.kill_at = Clock::now() + kPatience;
}

/// Reaps orphaned processes, whose parent the launcher has become.
void LocalWorkers::reap_orphans() {
  const auto is_worker = [this](pid_t pid) {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.worker.session() == pid; });
  };
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (is_worker(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, 0);
  }
}

bool LocalWorkers::is_calm() const {
  return std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.ended || m.kill_at; });
}

}  // namespace lockstep::tools
