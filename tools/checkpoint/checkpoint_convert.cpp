#include "tools/checkpoint/checkpoint_convert.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <unistd.h>
#include <utility>

#include <ATen/ATen.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/formats/safetensors.h"
#include "lockstep/state/load_plan.h"
#include "lockstep/train/retention.h"
#include "lockstep/version.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

/// Metadata of a file that say what a checkpoint says of itself.
constexpr const char* kStepKey = "lockstep.step";
constexpr const char* kWriterKey = "lockstep.written_by";

Json to_file(const CheckpointSource& source, const std::string& path, std::optional<int64_t> step) {
  std::map<std::string, std::string> metadata;
  if (source.info) {
    metadata.emplace(kStepKey, std::to_string(step.value_or(source.info->step)));
    metadata.emplace(kWriterKey, source.info->written_by);
  }
  const progress::Task task("writing " + path);
  detail::write_safetensors(source.state, path, metadata);
  return {{"from", source.path}, {"to", path}, {"bytes", fs::file_size(path)}};
}

/// The metadata of a safetensors file; none of other files.
std::map<std::string, std::string> metadata_of(const std::string& path) {
  if (!path.ends_with(".safetensors")) return {};
  return detail::read_safetensors_header(detail::BlockFile(path, {})).metadata;
}

int64_t step_of_text(const std::string& text, const std::string& file) {
  int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  LOCKSTEP_CHECK_DATA(error == std::errc() && end == text.data() + text.size() && step >= 0,
                      "[checkpoint convert] the metadata of the file must have a number of steps: file=\"", file,
                      "\", ", kStepKey, "=\"", text, "\"; give --step");
  return step;
}

detail::CheckpointInfo info_for(const CheckpointSource& source, std::optional<int64_t> step) {
  detail::CheckpointInfo info;
  info.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  info.written_by = "lockstep checkpoint convert";
  if (source.info) {
    info = *source.info;
  } else {
    const auto metadata = metadata_of(source.path);
    if (const auto writer = metadata.find(kWriterKey); writer != metadata.end()) info.written_by = writer->second;
    if (const auto saved = metadata.find(kStepKey); saved != metadata.end()) {
      info.step = step ? *step : step_of_text(saved->second, source.path);
    }
  }
  if (step) info.step = *step;
  info.lockstep_version = version();
  info.libtorch_version = TORCH_VERSION;
  info.parts.clear();
  return info;
}

/// A tensor and all its names.
struct PlannedTensor {
  const StateTensor* tensor = nullptr;
  std::vector<std::string> names = {};
};

struct PlannedPart {
  std::vector<PlannedTensor> tensors = {};
  int64_t num_bytes = 0;
};

/// The tensors of a state, each once.
std::vector<PlannedTensor> different_tensors(const State& state) {
  std::vector<PlannedTensor> all;
  std::map<std::pair<const detail::BlockFile*, int64_t>, size_t> known;
  for (const auto& [name, value] : state) {
    const auto* const tensor = std::get_if<StateTensor>(&value);
    if (tensor == nullptr) continue;
    if (!tensor->stored.empty() && tensor->numel() > 0) {
      const auto place = std::pair(tensor->stored[0].file.get(), tensor->stored[0].offset);
      const auto [found, is_new] = known.emplace(place, all.size());
      if (!is_new && detail::are_same_elements(*all[found->second].tensor, *tensor)) {
        all[found->second].names.push_back(name);
        continue;
      }
    }
    all.push_back({tensor, {name}});
  }
  return all;
}

/// Divides tensors into parts of at most `part_bytes`, or of one tensor that has more.
std::vector<PlannedPart> plan_parts(const State& state, int64_t part_bytes) {
  std::vector<PlannedPart> parts(1);
  for (const PlannedTensor& planned : different_tensors(state)) {
    const int64_t num_bytes = planned.tensor->num_bytes();
    if (!parts.back().tensors.empty() && parts.back().num_bytes > part_bytes - num_bytes) parts.emplace_back();
    parts.back().tensors.push_back(planned);
    parts.back().num_bytes += num_bytes;
  }
  return parts;
}

/// Reads the tensors of a part and writes them.
detail::PartIndex write_planned(const PlannedPart& part, const std::string& path, progress::Task& task) {
  std::vector<at::Tensor> held;
  std::vector<detail::SavedPiece> pieces;
  for (const auto& [tensor, names] : part.tensors) {
    held.push_back(tensor->read());
    pieces.push_back({names[0],
                      tensor->dtype,
                      tensor->sizes,
                      0,
                      tensor->numel(),
                      static_cast<const char*>(held.back().data_ptr()),
                      {names.begin() + 1, names.end()}});
  }
  return detail::write_part(path, pieces, {.task = &task});
}

int64_t write_folder(const CheckpointSource& source, detail::CheckpointInfo info, int64_t part_bytes,
                     const std::string& folder) {
  const std::vector<PlannedPart> parts = plan_parts(source.state, part_bytes);
  int64_t bytes = 0;
  for (const PlannedPart& part : parts) bytes += part.num_bytes;
  progress::Task task("converting " + source.path, {.unit = "bytes", .total = std::exchange(bytes, 0)});
  for (size_t i = 0; i < parts.size(); ++i) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "part_%05zu_of_%05zu.safetensors", i, parts.size());
    info.parts.push_back(write_planned(parts[i], folder + "/" + name.data(), task));
    bytes += info.parts.back().num_bytes;
  }
  detail::write_index(folder, std::move(info), source.state, {});
  return bytes;
}

Json to_folder(const CheckpointSource& source, const std::string& parent, const ConvertOptions& options) {
  const detail::CheckpointInfo info = info_for(source, options.step);
  const std::string target = (fs::path(parent) / detail::checkpoint_name(info.step)).string();
  LOCKSTEP_CHECK_DATA(!fs::exists(target), "[checkpoint convert] the checkpoint is there already: folder=\"", target,
                      "\"; choose another folder or --step");
  // Locked, so that a training that saves to the same folder does not remove it.
  const detail::TemporaryFolder folder(parent, info.step, c10::str("convert-", ::getpid(), "-", std::random_device()()),
                                       true);
  int64_t bytes = 0;
  try {
    folder.make();
    bytes = write_folder(source, info, options.part_bytes, folder.path());
    // Unlike a save it does not replace: a checkpoint of this step may have come in the meantime.
    LOCKSTEP_CHECK_DATA(std::rename(folder.path().c_str(), target.c_str()) == 0,
                        "[checkpoint convert] cannot rename: from=\"", folder.path(), "\", to=\"", target,
                        "\": ", std::strerror(errno));
  } catch (...) {
    folder.remove();
    throw;
  }
  detail::sync_folder(parent);
  return {{"from", source.path}, {"to", target}, {"bytes", bytes}};
}

}  // namespace

Json convert(const CheckpointSource& source, const std::string& to, const ConvertOptions& options) {
  if (to.ends_with(".safetensors")) return to_file(source, to, options.step);
  return to_folder(source, to, options);
}

}  // namespace lockstep::tools
