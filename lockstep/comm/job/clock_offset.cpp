#include "lockstep/comm/job/clock_offset.h"

#include <charconv>
#include <chrono>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/message.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds kClockTimeout{30};

int64_t own_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int64_t clock_offset(Job& job) { return job.one_machine() ? 0 : measured_clock_offset(job); }

int64_t measured_clock_offset(Job& job, int rounds) {
  int64_t shortest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < rounds && job.worker() != 0; ++i) {
    const int64_t begin = own_clock();
    const std::string answer = job.get(std::string(job::kClockKey), kClockTimeout);
    const int64_t end = own_clock();
    int64_t theirs = 0;
    const auto read = std::from_chars(answer.data(), answer.data() + answer.size(), theirs);
    LOCKSTEP_CHECK_COLLECTIVE(read.ec == std::errc(), "[trace] worker 0 must answer with its clock: answer=", answer);
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    offset = theirs - (begin + shortest / 2);
  }
  return offset;
}

}  // namespace lockstep::comm
