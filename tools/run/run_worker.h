#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

/// One worker of `lockstep run`: a process that leads its own session and writes into two pipes.
namespace lockstep::tools {

/// A file descriptor that is closed once.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset();

 private:
  int release();

  int fd_ = -1;
};

/// Room in a worker's pipes where the system allows it: enough for bursts, and below the limit of an unprivileged user
/// for 64 workers.
inline constexpr int kPipeBytes = 256 * 1024;

/// Both ends of a pipe; neither survives an exec.
struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

/// Opens a pipe or throws.
Pipe open_pipe();

/// Returns the file that PROGRAM means, looked for in PATH where it has no slash. Throws ValueError where there is none
/// that can be executed.
std::string find_program(const std::string& program);

/// A running worker. Whoever started it must call `end` after its exit has been seen; a worker that is destroyed
/// earlier is killed with all that it started.
class Worker {
 public:
  /// Starts `file` with `arguments` (the first is its name) and the environment; its input is empty. Returns when the
  /// program runs, throws when the system refuses it. The worker is killed when this process dies.
  Worker(const std::string& file, const std::vector<std::string>& arguments,
         const std::vector<std::string>& environment);
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;
  ~Worker();

  pid_t session() const { return pid_; }
  /// How the worker ended, as waitpid tells it, or nothing while it runs. Its number stays taken until `end`.
  std::optional<int> status();
  /// Sends a signal to the worker and all that it started.
  void signal(int signal) const;
  /// Whether anything that the worker started, or itself, still runs.
  bool lives() const;
  /// Gives the number of an ended worker back to the system.
  void end();

  FileDescriptor output;
  FileDescriptor errors;

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace lockstep::tools
