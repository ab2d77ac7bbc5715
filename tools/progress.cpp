#include "tools/progress.h"

#include <iostream>
#include <unistd.h>
#include <utility>

namespace lockstep::tools {
namespace {
constexpr auto kPeriod = std::chrono::milliseconds(500);
}

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kPeriod) {}

Progress::~Progress() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::report(int64_t count) {
  if (!on_terminal_ || (count & 0xff) != 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kPeriod;
  shown_ = true;
  std::cerr << '\r' << what_ << ": " << count << ' ' << unit_ << std::flush;
}

}  // namespace lockstep::tools
