#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/run/run_worker.h"

/// Joins the output of all workers of `lockstep run`, line by line.
namespace lockstep::tools {

/// An output stream of one worker, and its target.
struct OutputStream {
  /// Read end of the pipe, in non-blocking mode.
  FileDescriptor source;
  /// Standard output or standard error of the launcher.
  int target = -1;
  /// Goes in front of each line.
  std::string prefix;
  /// The line that has not ended yet.
  std::string unfinished;
};

/// Copies lines from all streams to their targets on a thread of its own. Lines stay whole, other bytes
/// are not interpreted, and a last line without a line end gets one. Lines of more than 16 MiB are split. When a target
/// is closed, its sources are closed, so that writers see the same error as without the launcher.
class OutputThread {
 public:
  OutputThread();
  /// Calls `finish`.
  ~OutputThread();

  /// Adds streams.
  void add(std::vector<OutputStream> streams);

  /// Copies the current contents of the pipes, waits until they are written, and closes the pipes, even if another
  /// process has their other ends open.
  void finish();

 private:
  void copy();

  void take_new();

  std::vector<OutputStream> streams_;
  std::mutex mutex_;
  std::vector<OutputStream> new_;
  /// A byte tells of new streams; its end of the end.
  Pipe news_;
  std::thread thread_;
};

/// Returns `[worker 1] `, in a colour of its own for a terminal.
std::string worker_prefix(int worker, int target);

}  // namespace lockstep::tools
