#include "tools/run/run_worker.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "tools/run/run_session.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What the new process needs; all of it is ready before the fork, since little may be called after it.
struct Start {
  const char* file;
  char* const* arguments;
  char* const* environment;
  pid_t launcher;
  int output;
  int errors;
  int refusal;
};

[[noreturn]] void refuse(const Start& start) {
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(start.refusal, &error, sizeof(error));
  _exit(127);
}

[[noreturn]] void become_worker(const Start& start) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != start.launcher) _exit(127);  // it died before the line above
  const int input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(start.output, STDOUT_FILENO) < 0 ||
      dup2(start.errors, STDERR_FILENO) < 0) {
    refuse(start);
  }
  if (input > STDERR_FILENO) close(input);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(start.file, start.arguments, start.environment);  // unlike execve it gives scripts without #! to the shell
  refuse(start);
}

/// Reads the reason why the program could not be started, or 0 when it runs.
int read_refusal(int fd) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(fd, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(error) ? error : 0;
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

Pipe open_pipe() {
  int ends[2];
  LOCKSTEP_CHECK_VALUE(pipe2(ends, O_CLOEXEC) == 0,
                       "[run] the launcher must be able to open two pipes for each worker: error=",
                       std::generic_category().message(errno), "; start fewer workers, or raise the limit (ulimit -n)");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    LOCKSTEP_CHECK_VALUE(fs::exists(program), "[run] the program must exist: program=", program);
    LOCKSTEP_CHECK_VALUE(is_executable(program), "[run] the program must be an executable file: program=", program,
                         "; chmod +x makes it one, or start its interpreter");
    return program;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / program;
    if (is_executable(file)) return file;
  }
  LOCKSTEP_THROW(c10::ValueError, "[run] the program must be in a folder of PATH: program=", program,
                 is_executable(program) ? "; write ./" + program + " for the one in this folder" : "");
}

Worker::Worker(const std::string& file, const std::vector<std::string>& arguments,
               const std::vector<std::string>& environment) {
  Pipe output_pipe = open_pipe();
  Pipe error_pipe = open_pipe();
  Pipe refusal = open_pipe();
  for (const Pipe* pipe : {&output_pipe, &error_pipe}) {
    fcntl(pipe->read_end.get(), F_SETPIPE_SZ, kPipeBytes);  // may be refused, which is slower, not wrong
    fcntl(pipe->read_end.get(), F_SETFL, O_NONBLOCK);
  }
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const Start start{file.c_str(),
                    argument_pointers.data(),
                    environment_pointers.data(),
                    getpid(),
                    output_pipe.write_end.get(),
                    error_pipe.write_end.get(),
                    refusal.write_end.get()};
  pid_ = fork();
  LOCKSTEP_CHECK_VALUE(pid_ >= 0, "[run] the system must let the launcher start its workers: error=",
                       std::generic_category().message(errno), "; start fewer of them");
  if (pid_ == 0) become_worker(start);
  refusal.write_end.reset();
  if (const int error = read_refusal(refusal.read_end.get()); error != 0) {
    waitpid(std::exchange(pid_, -1), nullptr, 0);
    LOCKSTEP_THROW(c10::ValueError, "[run] the program must be one that this machine can execute: program=", file,
                   ", error=", std::generic_category().message(error));
  }
  output = std::move(output_pipe.read_end);
  errors = std::move(error_pipe.read_end);
}

Worker::Worker(Worker&& other) noexcept
    : output(std::move(other.output)),
      errors(std::move(other.errors)),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_) {}

Worker::~Worker() {
  if (pid_ < 0) return;
  while (lives()) {
    signal(SIGKILL);
    usleep(1000);
  }
  end();
}

std::optional<int> Worker::status() {
  siginfo_t info{};
  if (status_ || pid_ < 0 || waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return status_;
  // As waitpid would say it; waitid with WNOWAIT leaves the number taken, so that signals to the session go to nobody
  // else.
  status_ = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status);
  return status_;
}

void Worker::signal(int signal) const { signal_session(pid_, signal); }

bool Worker::lives() const { return session_lives(pid_); }

void Worker::end() { waitpid(std::exchange(pid_, -1), nullptr, 0); }

}  // namespace lockstep::tools
