#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace lockstep::comm {

/// While it lives, writing to a closed connection on the calling thread is an error instead of SIGPIPE.
///
/// Gloo writes to its sockets without MSG_NOSIGNAL. The signal goes to the thread that writes, so it is blocked there
/// and discarded; the program's own handling of SIGPIPE does not change. Threads that are started in the scope, such as
/// Gloo's own, inherit the blocked signal.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipesAreErrors() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace lockstep::comm
