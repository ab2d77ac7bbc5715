#include "bench/own_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

/// Leaves the process without the destructors of what its parent had.
[[noreturn]] void run_and_leave(const std::function<void()>& work) {
  int status = 1;
  try {
    work();
    status = 0;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(status);
}

pid_t start_process(const std::function<void()>& work) {
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  LOCKSTEP_CHECK_VALUE(process >= 0, "[bench] a process must be started: ", std::strerror(errno));
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it died before the line above
    run_and_leave(work);
  }
  return process;
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool receive(int socket) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(socket, &byte, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

bool send_to(int socket) {
  const char byte = 1;
  return send(socket, &byte, 1, MSG_NOSIGNAL) == 1;
}

}  // namespace

int use_cores(int count) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  LOCKSTEP_CHECK_VALUE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0,
                       "[bench] the system must tell which cores there are: ", std::strerror(errno));
  int taken = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (taken == count) {
      CPU_CLR(core, &allowed);
    } else {
      ++taken;
    }
  }
  LOCKSTEP_CHECK_VALUE(sched_setaffinity(0, sizeof(allowed), &allowed) == 0,
                       "[bench] the process must be kept to its cores: cores=", taken, "; ", std::strerror(errno));
  return taken;
}

void in_own_process(const std::string& what, const std::function<void()>& work) {
  const int status = wait_for(start_process(work));
  LOCKSTEP_CHECK_VALUE(!WIFSIGNALED(status), "[bench] the measurement was ended: ", what,
                       ", signal=", strsignal(WTERMSIG(status)));
  LOCKSTEP_CHECK_VALUE(WEXITSTATUS(status) == 0, "[bench] the measurement failed: ", what);
}

WorkElsewhere::WorkElsewhere(const std::function<std::function<void()>()>& make) {
  int sockets[2];
  LOCKSTEP_CHECK_VALUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0,
                       "[bench] two processes must be connected: ", std::strerror(errno));
  process_ = start_process([&] {
    close(sockets[0]);
    const std::function<void()> work = make();
    while (receive(sockets[1])) {
      work();
      if (!send_to(sockets[1])) break;
    }
  });
  close(sockets[1]);
  socket_ = sockets[0];
}

WorkElsewhere::~WorkElsewhere() {
  close(socket_);
  wait_for(process_);
}

void WorkElsewhere::operator()() const {
  LOCKSTEP_CHECK_VALUE(send_to(socket_) && receive(socket_),
                       "[bench] the other process of the measurement has ended; it has said why");
}

}  // namespace lockstep::bench
