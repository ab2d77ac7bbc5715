#include "lockstep/comm/pack.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {

std::vector<Pack> group_by_size(std::span<const uint64_t> bytes, int64_t bytes_per_pack) {
  LOCKSTEP_CHECK_VALUE(bytes_per_pack >= 0,
                       "[group_by_size] bytes_per_pack must be >= 0: bytes_per_pack=", bytes_per_pack);
  if (bytes_per_pack == 0) return {{0, bytes.size()}};
  std::vector<Pack> packs;
  uint64_t filled = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (packs.empty() || filled > static_cast<uint64_t>(bytes_per_pack)) {
      packs.push_back({i, i});
      filled = 0;
    }
    packs.back().end = i + 1;
    filled += bytes[i];
  }
  return packs;
}

std::vector<Pack> group_by_size(at::TensorList tensors, int64_t bytes_per_pack) {
  std::vector<uint64_t> bytes;
  bytes.reserve(tensors.size());
  for (const auto& tensor : tensors) bytes.push_back(tensor.nbytes());
  return group_by_size(bytes, bytes_per_pack);
}

}  // namespace lockstep::comm
