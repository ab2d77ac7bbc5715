#include "tools/run/run_watchdog.h"

#include <fcntl.h>
#include <set>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "tools/run/run_session.h"

namespace lockstep::tools {
namespace {

/// Detaches from the launcher's terminal, signals and output.
void stand_apart() {
  setsid();
  prctl(PR_SET_NAME, "lockstep-watch");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
}

void kill_all(const std::set<pid_t>& sessions) {
  for (const pid_t session : sessions) {
    while (session_lives(session)) {
      signal_session(session, SIGKILL);
      usleep(1000);
    }
  }
}

/// A message is a session to guard, or the negative of one to guard no longer; the launcher's end is the end of the
/// pipe.
[[noreturn]] void watch(int messages, const std::filesystem::path& folder) {
  stand_apart();
  std::set<pid_t> sessions;
  pid_t message = 0;
  while (read(messages, &message, sizeof(message)) == sizeof(message)) {
    if (message > 0) {
      sessions.insert(message);
    } else {
      sessions.erase(-message);
    }
  }
  kill_all(sessions);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

Watchdog::Watchdog(const std::filesystem::path& folder) : messages_(open_pipe()), pid_(fork()) {
  if (pid_ == 0) {
    messages_.write_end.reset();
    watch(messages_.read_end.get(), folder);
  }
  messages_.read_end.reset();
}

Watchdog::~Watchdog() {
  messages_.write_end.reset();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void Watchdog::guard(pid_t session) { tell(session); }

void Watchdog::release(pid_t session) { tell(-session); }

void Watchdog::tell(pid_t message) {
  // Errors are ignored: a killed watchdog matters only if the launcher is killed, too.
  [[maybe_unused]] const ssize_t told = write(messages_.write_end.get(), &message, sizeof(message));
}

}  // namespace lockstep::tools
