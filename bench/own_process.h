#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

namespace lockstep::bench {

/// Lets the calling thread, and those that it starts from now on, use `count` of its cores at most; returns how many
/// it got.
int use_cores(int count);

/// Calls `work` in a process of its own, which writes to the same standard output, and waits for it. c10::ValueError
/// that names `what` where it fails; the process itself has said why. The caller must not have started threads.
void in_own_process(const std::string& what, const std::function<void()>& work);

/// Work that is done in another process whenever it is called: with other cores, or with a plugin of its own. It sleeps
/// meanwhile.
class WorkElsewhere {
 public:
  /// `make` is called there and returns the work. The caller must not have started threads.
  explicit WorkElsewhere(const std::function<std::function<void()>()>& make);
  ~WorkElsewhere();
  WorkElsewhere(const WorkElsewhere&) = delete;
  WorkElsewhere& operator=(const WorkElsewhere&) = delete;

  /// Returns when it has been done. c10::ValueError where the process has ended instead.
  void operator()() const;

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

}  // namespace lockstep::bench
