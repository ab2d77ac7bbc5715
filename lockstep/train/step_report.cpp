#include "lockstep/train/step_report.h"

#include <optional>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/comm/views/step_file.h"

namespace lockstep::detail {
namespace {

using comm::views::StepFile;

/// Returns the file, opened at the first call; none where there is none.
std::optional<StepFile>& step_file() {
  static auto* const file = [] {
    auto* const opened = new std::optional<StepFile>;
    try {
      if (const auto path = env::given("LOCKSTEP_STEP_FILE")) *opened = StepFile::open(*path);
    } catch (const c10::Error& error) {
      LOCKSTEP_LOG(Warn) << error.what_without_backtrace() << "; the launcher learns of no steps";
    }
    return opened;
  }();
  return *file;
}

}  // namespace

void report_resumed_step(int64_t step) {
  if (auto& file = step_file()) file->set_resumed(step);
}

void report_finished_step(int64_t step) {
  comm::note_finished_step(step);
  if (auto& file = step_file()) file->set_finished(step);
}

}  // namespace lockstep::detail
