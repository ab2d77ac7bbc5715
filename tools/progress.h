#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::tools {

/// Shows progress: one line on standard error, rewritten every half second. Prints nothing where standard error is no
/// terminal.
class Progress {
 public:
  Progress(std::string what, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void report(int64_t count);

 private:
  std::string what_;
  std::string unit_;
  bool on_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace lockstep::tools
