#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace lockstep::comm {

/// Makes writing to a peer that is gone an error, for as long as it lives and on the calling thread.
///
/// Gloo writes to its sockets so that the system would end the process with SIGPIPE. The signal goes to the thread that
/// writes, so it is held back there and thrown away; the program's own handling of it stays as it is. A thread that is
/// started meanwhile, such as Gloo's own, never gets it.
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
