#pragma once

#include <string>
#include <thread>
#include <vector>

#include "tools/run_worker.h"

/// Joins the output of all workers of `lockstep run`, line by line.
namespace lockstep::tools {

/// What one worker writes, and where it goes.
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

/// Copies lines from all streams to their targets on a thread of its own. Lines stay whole, bytes are not looked at but
/// for the line ends, and a last line without one gets one. Lines of more than 16 MiB are cut. When a target is closed,
/// its sources are closed, so that a writer learns it as it would without the launcher.
class OutputThread {
 public:
  explicit OutputThread(std::vector<OutputStream> streams);
  /// Calls `finish`.
  ~OutputThread();

  /// Copies what the pipes hold now, waits until it is written, and closes them, though somebody else may hold their
  /// other ends.
  void finish();

 private:
  void copy();

  std::vector<OutputStream> streams_;
  Pipe finish_;
  std::thread thread_;
};

/// Returns `[worker 1] `, in a colour of its own for a terminal.
std::string worker_prefix(int worker, int target);

}  // namespace lockstep::tools
