#pragma once

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace lockstep {

/// A program with its input and output on pipes. Ends with this object, at the latest.
class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command) {
    int input[2];
    int output[2];
    if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    id_ = ::fork();
    if (id_ == 0) {
      ::dup2(input[0], STDIN_FILENO);
      ::dup2(output[1], STDOUT_FILENO);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    output_ = ::fdopen(output[0], "r");
  }
  ~ChildProcess() {
    ::close(input_);
    if (id_ > 0) {
      ::kill(id_, SIGTERM);
      ::waitpid(id_, nullptr, 0);
    }
    std::fclose(output_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Returns the next line without its end, or "" at the end of the output.
  std::string read_line() {
    std::string line;
    for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) line += static_cast<char>(c);
    return line;
  }

  /// Waits for the end and returns the exit status, 127 where there is no such program.
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, 0);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t id_ = -1;
  int input_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace lockstep
