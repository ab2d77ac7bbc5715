#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

namespace lockstep::bench {

/// Restricts the calling thread, and those that it starts later, to at most `count` of its cores; returns their number.
int use_cores(int count);

/// Calls `work` in a process of its own, which writes to the same standard output, and waits for it. The process is
/// killed with the thread that calls this. Throws
/// c10::ValueError that names `what` where it fails; the process prints the reason. The caller must not have started
/// threads.
void in_own_process(const std::string& what, const std::function<void()>& work);

/// Work that is done in another process at each call: with other cores, or with another plugin. Between calls that
/// process sleeps.
class WorkElsewhere {
 public:
  /// `make` is called there and returns the work. The caller must not have started threads.
  explicit WorkElsewhere(const std::function<std::function<void()>()>& make);
  ~WorkElsewhere();
  WorkElsewhere(const WorkElsewhere&) = delete;
  WorkElsewhere& operator=(const WorkElsewhere&) = delete;

  /// Returns when the work is done. Throws c10::ValueError where the process has ended instead.
  void operator()() const;

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

}  // namespace lockstep::bench
