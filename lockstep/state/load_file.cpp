#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/formats/safetensors.h"
#include "lockstep/state/formats/torch_file.h"
#include "lockstep/state/weights.h"

namespace lockstep {
namespace {

constexpr std::string_view kZipStart = "PK\x03\x04";
/// The magic number of torch.save before PyTorch 1.6, as a pickle.
constexpr std::string_view kOldTorchStart = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

}  // namespace

State load_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) return detail::open_checkpoint(path).state;
  const auto file = std::make_shared<const detail::BlockFile>(path, std::vector<uint32_t>{});
  std::string start(static_cast<size_t>(std::min<int64_t>(file->size(), kOldTorchStart.size())), '\0');
  const detail::BlockFile::Range range{0, start};
  file->read({&range, 1});
  if (start.starts_with(kZipStart)) return detail::open_torch_file(file);
  LOCKSTEP_CHECK_DATA(start != kOldTorchStart,
                      "[load_file] the format of torch.save before PyTorch 1.6 is not read: "
                      "file=\"",
                      path, "\"; convert it in Python: torch.save(torch.load(file), file)");
  LOCKSTEP_CHECK_DATA(start.size() > 8 && start[8] == '{',
                      "[load_file] the file must be safetensors, a state_dict saved by torch.save, TorchScript or the "
                      "folder of a checkpoint: file=\"",
                      path, "\", bytes=", file->size());
  return detail::open_safetensors(file);
}

}  // namespace lockstep
