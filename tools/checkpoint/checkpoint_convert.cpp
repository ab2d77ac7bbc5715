#include "tools/checkpoint/checkpoint_convert.h"

#include <chrono>
#include <filesystem>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/formats/safetensors.h"
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
  detail::write_safetensors(source.state, path, metadata);
  return {{"from", source.path}, {"to", path}, {"bytes", fs::file_size(path)}};
}

/// Removes a folder unless it was renamed.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(std::string path) : path_(std::move(path)) { fs::create_directories(path_); }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The metadata of a safetensors file; none of other files.
std::map<std::string, std::string> metadata_of(const std::string& path) {
  if (!path.ends_with(".safetensors")) return {};
  return detail::read_safetensors_header(detail::BlockFile(path, {})).metadata;
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
    if (const auto saved = metadata.find(kStepKey); saved != metadata.end()) info.step = std::stoll(saved->second);
  }
  if (step) info.step = *step;
  info.lockstep_version = version();
  info.libtorch_version = TORCH_VERSION;
  info.parts.clear();
  return info;
}

Json to_folder(const CheckpointSource& source, const std::string& parent, std::optional<int64_t> step) {
  const State& state = source.state;
  detail::CheckpointInfo info = info_for(source, step);
  const std::string target = (fs::path(parent) / detail::checkpoint_name(info.step)).string();
  LOCKSTEP_CHECK_DATA(!fs::exists(target), "[checkpoint convert] the checkpoint is there already: folder=\"", target,
                      "\"; choose another folder or --step");
  const UnfinishedFolder folder(
      (fs::path(parent) / c10::str(".", detail::checkpoint_name(info.step), ".writing-", ::getpid())).string());
  std::vector<at::Tensor> held;
  std::vector<detail::SavedPiece> pieces;
  for (const auto& [name, value] : state) {
    const auto* const tensor = std::get_if<StateTensor>(&value);
    if (tensor == nullptr) continue;
    held.push_back(tensor->read());
    pieces.push_back(
        {name, tensor->dtype, tensor->sizes, 0, tensor->numel(), static_cast<const char*>(held.back().data_ptr())});
  }
  info.parts = {detail::write_part(folder.path() + "/part_00000_of_00001.safetensors", pieces, {})};
  const int64_t bytes = info.parts[0].num_bytes;
  detail::write_index(folder.path(), std::move(info), state, {});
  fs::rename(folder.path(), target);
  detail::sync_folder(parent);
  return {{"from", source.path}, {"to", target}, {"bytes", bytes}};
}

}  // namespace

Json convert(const CheckpointSource& source, const std::string& to, std::optional<int64_t> step) {
  if (to.ends_with(".safetensors")) return to_file(source, to, step);
  return to_folder(source, to, step);
}

}  // namespace lockstep::tools
