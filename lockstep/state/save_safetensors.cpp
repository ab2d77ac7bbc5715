#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/formats/safetensors.h"
#include "lockstep/state/formats/safetensors_dtype.h"
#include "lockstep/state/json_values.h"
#include "lockstep/state/weights.h"

namespace lockstep {
namespace {

constexpr size_t kHeaderAlignment = 8;

/// A file that replaces another one when it is complete.
class ReplacingFile {
 public:
  explicit ReplacingFile(const std::string& path) : path_(path) {
    static std::atomic<int> count = 0;
    temporary_ = c10::str(path, ".writing-", ::getpid(), "-", count++);
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    check(file_ >= 0);
  }
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;
  ~ReplacingFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(temporary_.c_str());
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      check(written > 0);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  void finish() {
    check(::fsync(file_) == 0);
    check(::rename(temporary_.c_str(), path_.c_str()) == 0);
    ::close(file_);
    file_ = -1;
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    detail::sync_folder(folder.empty() ? "." : folder);
  }

 private:
  void check(bool condition) const {
    LOCKSTEP_CHECK_DATA(condition, "[save_safetensors] the file must be writable: file=\"", path_, "\" (",
                        std::strerror(errno), ")");
  }

  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

struct SavedTensors {
  detail::SafetensorsHeader header;
  /// In the order of their bytes: the widest elements first, so that all are aligned.
  std::vector<const StateTensor*> tensors;
};

SavedTensors layout_of(const State& state, const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, const StateTensor*>> found;
  detail::StateJson values = detail::StateJson::object();
  for (const auto& [name, value] : state) {
    LOCKSTEP_CHECK_VALUE(detail::is_utf8(name) && name != "__metadata__",
                         "[save_safetensors] a name must be a text in UTF-8: name=", name);
    const auto* const tensor = std::get_if<StateTensor>(&value);
    if (tensor != nullptr) {
      found.emplace_back(name, tensor);
    } else {
      values[name] = detail::value_to_json(value);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return c10::elementSize(a.second->dtype) > c10::elementSize(b.second->dtype);
  });
  SavedTensors saved;
  saved.header.metadata = metadata;
  saved.header.metadata.emplace("format", "pt");
  if (!values.empty()) saved.header.metadata.emplace(detail::kValuesKey, values.dump());
  int64_t position = 0;
  for (const auto& [name, tensor] : found) {
    const auto code = detail::safetensors_code(tensor->dtype);
    LOCKSTEP_CHECK_VALUE(code.has_value(), "[save_safetensors] safetensors files have no such dtype: name=", name,
                         ", dtype=", dtype_name(tensor->dtype));
    const int64_t end = position + tensor->num_bytes();
    saved.header.entries.push_back({name, *code, tensor->sizes, position, end});
    saved.tensors.push_back(tensor);
    position = end;
  }
  return saved;
}

}  // namespace

void detail::write_safetensors(const State& state, const std::string& path,
                               const std::map<std::string, std::string>& metadata) {
  const SavedTensors saved = layout_of(state, metadata);
  ReplacingFile file(path);
  file.write(detail::safetensors_start(saved.header, kHeaderAlignment));
  for (const StateTensor* tensor : saved.tensors) {
    const at::Tensor values = tensor->read();
    LOCKSTEP_ASSERT(values.is_contiguous() && values.device().is_cpu());
    file.write({static_cast<const char*>(values.data_ptr()), static_cast<size_t>(tensor->num_bytes())});
  }
  file.finish();
}

void save_safetensors(const State& state, const std::string& path) { detail::write_safetensors(state, path, {}); }

}  // namespace lockstep
