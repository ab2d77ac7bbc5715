#include "tools/checkpoint/checkpoint_source.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/state/weights.h"

namespace lockstep::tools {

std::vector<std::string> checkpoints_at(const std::string& path) {
  const std::filesystem::path folder(path);
  LOCKSTEP_CHECK_DATA(std::filesystem::exists(folder), "[checkpoint] there is no such folder: folder=\"", path, "\"");
  std::vector<std::string> found;
  if (std::filesystem::is_directory(folder) && !std::filesystem::exists(folder / "index.json")) {
    for (const int64_t step : detail::list_checkpoints(path)) {
      found.push_back((folder / detail::checkpoint_name(step)).string());
    }
  }
  return found.empty() ? std::vector{path} : found;
}

CheckpointSource open_source(const std::string& path) {
  CheckpointSource source;
  source.path = checkpoints_at(path).back();
  source.latest = source.path != path;
  if (std::filesystem::is_directory(source.path)) {
    detail::StoredCheckpoint stored = detail::open_checkpoint(source.path);
    source.info = std::move(stored.info);
    source.state = std::move(stored.state);
  } else {
    source.state = load_file(source.path);
  }
  return source;
}

}  // namespace lockstep::tools
