#include "tools/train/training_folder.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/strategy/variable/variable.h"
#include "lockstep/train/runs/run_lock.h"
#include "tools/runs/process_gone.h"

namespace lockstep::tools {
namespace {

constexpr int64_t kLongestFolder = 1000;

/// What run.json says; no object where there is none.
Json run_of(const std::string& folder) {
  std::ifstream file(folder + "/run.json");
  return file.good() ? Json::parse(file, nullptr, /*allow_exceptions=*/false) : Json();
}

/// Whether a training has failed here before the end of its first epoch, without a checkpoint.
bool is_failed_start(const std::string& folder) {
  const Json run = run_of(folder);
  const bool is_lost = run.is_object() && run.value("state", Json()) == "running" && is_process_gone(run);
  if (!run.is_object() || (run.value("state", Json()) != "failed" && !is_lost)) return false;
  const std::string metrics = folder + "/metrics.jsonl";
  return (!std::filesystem::exists(metrics) || std::filesystem::is_empty(metrics)) &&
         !has_checkpoint(checkpoints_path(folder));
}

/// The nearest folder above that is there must be one in which this user can make folders.
void check_can_be_made(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path above = std::filesystem::absolute(folder, ignored);
  while (above.has_relative_path() && !std::filesystem::exists(above, ignored)) above = above.parent_path();
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(above, ignored) && ::access(above.c_str(), W_OK | X_OK) == 0,
                       "[train] the folder cannot be made: folder=\"", folder, "\", above=\"", above.string(),
                       "\"; choose another --folder");
}

}  // namespace

std::string usual_folder(const Settings& settings, const std::string& time) {
  const std::string stem = std::filesystem::path(settings.text("model")).stem();
  const std::string wanted = "runs/" + stem + "-" + time;
  std::string folder = wanted;
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = wanted + "-" + std::to_string(i);
  return folder;
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::ostringstream text;
  text << std::put_time(&parts, "%Y%m%d-%H%M%S");
  return text.str();
}

bool has_checkpoint(const std::string& folder) {
  return std::filesystem::exists(folder) && !detail::list_checkpoints(folder).empty();
}

void check_new_folder(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return check_can_be_made(folder);
  LOCKSTEP_CHECK_VALUE(!std::filesystem::exists(plan_path(folder)), "[train] the folder has a run: folder=\"", folder,
                       "\"; continue it with --resume, or choose another --folder");
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(folder), "[train] a file has the name of the folder: folder=\"",
                       folder, "\"; choose another --folder");
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_empty(folder) || is_failed_start(folder),
                       "[train] the folder is not empty: folder=\"", folder, "\"; choose another --folder");
}

void begin_folder(const std::string& folder, const TrainPlan& plan, bool resume) {
  std::filesystem::create_directories(folder);
  // Nothing is written where another training runs; the run folder takes the lock for the training.
  detail::RunLock lock;
  lock.acquire(folder, run_of(folder));
  LOCKSTEP_CHECK_VALUE(resume || !std::filesystem::exists(plan_path(folder)), "[train] another run has begun in the ",
                       "folder: folder=\"", folder, "\"; choose another --folder");
  const std::string model = plan.settings.text("model");
  if (!resume && is_script_file(model)) std::filesystem::copy_file(model, script_path(folder));
  detail::replace_file(plan_path(folder), plan.to_json().dump(2) + "\n", /*sync=*/false);
}

std::string agreed_folder(const Strategy& strategy, const std::string& folder, const TrainPlan& plan) {
  if (folder.size() > kLongestFolder) {
    LOCKSTEP_THROW(c10::ValueError, "[train] the name of the folder is too long: characters=", folder.size());
  }
  Json same = plan.to_json();
  for (const char* name : {"folder", "data", "validation"}) same["settings"].erase(name);  // checksums stay
  // Computed by each worker; the first one's are used.
  same.erase("shift");
  same.erase("scale");
  torch::Tensor own = torch::zeros({kLongestFolder + 1}, torch::kLong);
  own[0] = static_cast<int64_t>(std::hash<std::string>{}(same.dump()));
  for (size_t i = 0; i < folder.size(); ++i) own[static_cast<int64_t>(i) + 1] = static_cast<int64_t>(folder[i]);
  const auto scope = strategy.scope();
  const torch::Tensor first = Variable(own).read_value().cpu();
  LOCKSTEP_CHECK_VALUE(
      first[0].equal(own[0]),
      "[train] all workers must have the same settings and data: this worker's differ from those of the "
      "first; its plan=",
      same.at("settings").dump());
  std::string agreed;
  for (int64_t i = 1; i <= kLongestFolder && first[i].item<int64_t>() != 0; ++i) {
    agreed += static_cast<char>(first[i].item<int64_t>());
  }
  return agreed;
}

}  // namespace lockstep::tools
