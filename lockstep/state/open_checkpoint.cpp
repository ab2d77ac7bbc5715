#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/checkpoint_index.h"

namespace lockstep::detail {
namespace {

constexpr const char* kIndexName = "index.json";
constexpr std::string_view kStepPrefix = "step_";
/// Of an index: larger files are something else.
constexpr int64_t kLargestIndex = int64_t{1} << 30;

std::string read_index(const std::string& path) {
  const BlockFile file(path, {});
  LOCKSTEP_CHECK_DATA(file.size() <= kLargestIndex, "[load] an index has at most 1 GiB: file=\"", path,
                      "\", bytes=", file.size());
  std::string text(static_cast<size_t>(file.size()), '\0');
  const BlockFile::Range range{0, {text.data(), text.size()}};
  file.read({&range, 1});
  return text;
}

StateTensor& tensor_in(std::map<std::string, StateTensor>& tensors, const PartIndex::Piece& piece) {
  StateTensor& tensor = tensors[piece.name];
  tensor.dtype = piece.dtype;
  tensor.sizes = piece.sizes;
  return tensor;
}

}  // namespace

StoredCheckpoint open_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kIndexName;
  IndexContent content = parse_index(read_index(path), path);
  StoredCheckpoint checkpoint{std::move(content.info), std::move(content.values)};
  std::map<std::string, StateTensor> tensors;
  for (const PartIndex& part : checkpoint.info.parts) {
    const auto file = std::make_shared<const BlockFile>(folder + "/" + part.file, part.checksums);
    LOCKSTEP_CHECK_DATA(file->size() == part.num_bytes, "[load] a part must be as long as the index says: file=\"",
                        file->path(), "\", bytes=", file->size(), ", bytes of the index=", part.num_bytes);
    for (const PartIndex::Piece& piece : part.pieces) {
      tensor_in(tensors, piece).stored.push_back({piece.begin, piece.end, file, piece.offset});
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.stored.begin(), tensor.stored.end(), [](const StoredPiece& a, const StoredPiece& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    checkpoint.state.set(name, std::move(tensor));
  }
  return checkpoint;
}

StoredCheckpoint verify_checkpoint(const std::string& folder, progress::Task* task) {
  StoredCheckpoint checkpoint = open_checkpoint(folder);
  int64_t bytes = 0;
  for (const PartIndex& part : checkpoint.info.parts) bytes += part.num_bytes;
  if (task != nullptr) task->set_total(bytes);
  for (const PartIndex& part : checkpoint.info.parts) {
    BlockFile(folder + "/" + part.file, part.checksums).verify(task);
  }
  return checkpoint;
}

std::string checkpoint_name(int64_t step) {
  LOCKSTEP_CHECK_VALUE(step >= 0, "[save] the step must be at least 0: step=", step);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "step_%010lld", static_cast<long long>(step));
  return text.data();
}

std::optional<int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const begin = name.data() + kStepPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return steps;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto step = step_of_name(entry->path().filename().string());
    std::error_code absent;
    if (step && std::filesystem::exists(entry->path() / kIndexName, absent)) steps.push_back(*step);
  }
  LOCKSTEP_CHECK_DATA(!error, "[load] the folder must be readable: folder=\"", folder, "\" (", error.message(), ")");
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace lockstep::detail
