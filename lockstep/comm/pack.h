#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::comm {

/// A run of consecutive tensors of a list: those from `begin` up to, not including, `end`.
struct LOCKSTEP_API Pack {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const Pack&) const = default;
};

/// Cuts a list into packs by size: a pack is closed as soon as it is larger than `bytes_per_pack`.
/// With 0 all go into one pack, which is empty for an empty list.
LOCKSTEP_API std::vector<Pack> group_by_size(std::span<const uint64_t> bytes, int64_t bytes_per_pack);

/// Cuts a list of tensors into packs by their sizes in bytes.
LOCKSTEP_API std::vector<Pack> group_by_size(at::TensorList tensors, int64_t bytes_per_pack);

}  // namespace lockstep::comm
