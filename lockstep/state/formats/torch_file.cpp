#include "lockstep/state/formats/torch_file.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/state/formats/pickle_state.h"
#include "lockstep/state/formats/zip_directory.h"

namespace lockstep::detail {
namespace {

/// A file of `torch.save`.
class TorchArchive {
 public:
  explicit TorchArchive(std::shared_ptr<const BlockFile> file) : file_(std::move(file)) {
    members_ = stored_members([&](int64_t offset, std::span<char> target) { read(offset, target); }, file_->size(),
                              file_->path());
    for (const auto& [name, member] : members_) {
      if (name.ends_with("/data.pkl") && std::count(name.begin(), name.end(), '/') == 1) {
        prefix_ = name.substr(0, name.find('/') + 1);
      }
    }
    LOCKSTEP_CHECK_DATA(!prefix_.empty(), "[", file_->path(), "] is a zip archive, but none of PyTorch");
  }

  bool has(const std::string& name) const { return members_.contains(prefix_ + name); }

  std::string text(const std::string& name) const {
    const StoredMember& member = members_.at(prefix_ + name);
    check_plain(name, member);
    std::string bytes(static_cast<size_t>(member.num_bytes), '\0');
    read(member.offset, bytes);
    return bytes;
  }

  StateTensor tensor(const PickleTensor& pickled) const {
    const TensorExtent extent = extent_of(pickled, file_->path());
    const auto element = static_cast<int64_t>(c10::elementSize(extent.dtype));
    const auto found = members_.find(prefix_ + "data/" + pickled.storage.key);
    LOCKSTEP_CHECK_DATA(found != members_.end(), "[", file_->path(),
                        "] the bytes of a tensor are missing: storage=", pickled.storage.key);
    check_plain(found->first, found->second);
    const int64_t storage_bytes = pickled.storage.numel * (pickled.dtype.empty() ? element : 1);
    LOCKSTEP_CHECK_DATA(found->second.num_bytes == storage_bytes, "[", file_->path(),
                        "] a storage has another size: storage=", pickled.storage.key,
                        ", bytes=", found->second.num_bytes, ", expected=", storage_bytes);
    const int64_t offset = found->second.offset + pickled.offset * element;
    StateTensor tensor;
    tensor.dtype = extent.dtype;
    tensor.sizes = pickled.sizes;
    if (extent.contiguous) {
      tensor.stored.push_back({0, tensor.numel(), file_, offset});
      return tensor;
    }
    const at::Tensor reached = at::empty({extent.reached}, at::device(at::kCPU).dtype(extent.dtype));
    read(offset, {static_cast<char*>(reached.data_ptr()), static_cast<size_t>(extent.reached * element)});
    return StateTensor(reached.as_strided(pickled.sizes, pickled.strides));
  }

 private:
  void check_plain(const std::string& name, const StoredMember& member) const {
    LOCKSTEP_CHECK_DATA(member.plain, "[", file_->path(),
                        "] members of the archive must be stored without compression: name=", name);
  }

  void read(int64_t offset, std::span<char> target) const {
    const BlockFile::Range range{offset, target};
    file_->read({&range, 1});
  }

  std::shared_ptr<const BlockFile> file_;
  std::map<std::string, StoredMember> members_;
  std::string prefix_;
};

}  // namespace

State open_torch_file(std::shared_ptr<const BlockFile> file) {
  const std::string path = file->path();
  const TorchArchive archive(std::move(file));
  if (archive.has("constants.pkl")) return open_torch_script(path);
  LOCKSTEP_CHECK_DATA(!archive.has("byteorder") || archive.text("byteorder") == "little", "[", path,
                      "] bytes must be in little-endian order; save it on such a machine");
  const Pickle pickle(archive.text("data.pkl"), path);
  return flatten_pickle(pickle, path, [&](const PickleTensor& tensor) { return archive.tensor(tensor); });
}

}  // namespace lockstep::detail
