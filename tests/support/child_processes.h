#pragma once

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/support/test_folder.h"

namespace lockstep::tests {

/// The file of the running program.
inline std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

/// A process that was started with its output in a file. What still runs at the end of the test is killed.
class ChildProcess {
 public:
  ChildProcess(std::vector<std::string> command, std::filesystem::path output) : output_(std::move(output)) {
    std::vector<char*> arguments;
    for (auto& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (::posix_spawnp(&id_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) id_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ChildProcess(ChildProcess&& other) noexcept
      : output_(std::move(other.output_)), id_(std::exchange(other.id_, -1)), status_(other.status_) {}
  ChildProcess& operator=(ChildProcess&&) = delete;

  ~ChildProcess() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

  pid_t id() const { return id_; }
  void send_signal(int signal) const {
    if (id_ > 0) ::kill(id_, signal);
  }

  /// Returns whether it has ended before the deadline.
  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    while (id_ > 0) {
      if (::waitpid(id_, &status_, WNOHANG) == id_) {
        id_ = -1;
      } else if (std::chrono::steady_clock::now() > deadline) {
        return false;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return true;
  }

  /// Returns how it ended: "exit 0", "signal 9".
  std::string outcome() const {
    if (id_ > 0) return "still running";
    if (WIFEXITED(status_)) return "exit " + std::to_string(WEXITSTATUS(status_));
    return "signal " + std::to_string(WTERMSIG(status_));
  }

  std::string output() const {
    std::ostringstream text;
    text << std::ifstream(output_).rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path output_;
  pid_t id_ = -1;
  int status_ = 0xff00;
};

}  // namespace lockstep::tests
