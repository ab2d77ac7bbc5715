#include "tools/run/change_report.h"

#include <algorithm>
#include <sstream>

namespace lockstep::tools {

std::string count_of(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void ChangeReport::begin(int num_members) {
  *this = {};
  members_before_ = num_members;
}

void ChangeReport::note_step(int64_t step) { last_step_ = std::max(last_step_, step); }

void ChangeReport::note_failure() {
  if (since_ == Clock::time_point()) since_ = Clock::now();
}

void ChangeReport::note_loss(const std::string& what) {
  note_failure();
  losses_.push_back(what);
}

std::string ChangeReport::take(int num_members, int64_t step, const std::string& source) {
  std::ostringstream line;
  for (const std::string& loss : losses_) line << loss << "; ";
  if (losses_.empty() && num_members > members_before_) {
    line << count_of(num_members - members_before_, "worker") << " came; ";
  }
  line << count_of(num_members, "worker") << (num_members == 1 ? " goes" : " go") << " on after step " << step << " ("
       << source << "), " << count_of(std::max<int64_t>(last_step_ - step, 0), "step") << " lost";
  if (since_ != Clock::time_point()) {
    line.precision(1);
    line << ", " << std::fixed << std::chrono::duration<double>(Clock::now() - since_).count() << " s";
  }
  begin(num_members);
  last_step_ = step;
  return line.str();
}

}  // namespace lockstep::tools
