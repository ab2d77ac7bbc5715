#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/train/checkpoint.h"

/// Internal: which worker writes which elements of a checkpoint.
namespace lockstep::detail {

/// Elements [begin, end) of a tensor, in the memory of its object.
struct LOCKSTEP_API HeldPiece {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  /// Of the whole tensor.
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  int64_t end = 0;
  /// A vector of these elements, on any device.
  at::Tensor values;
  /// As in `StatePiece`.
  uint64_t flipped = 0;
  /// Further names of the tensor.
  std::vector<std::string> aliases = {};

  int64_t num_bytes() const;
};

struct WriterPlace {
  int worker = 0;
  int num_workers = 1;
};

/// Returns what the worker at `place` writes. Pieces that only one worker holds are written by it. Tensors that every
/// worker holds are divided, so that all write about as many bytes of them; small ones stay whole. Objects that belong
/// to no strategy are written by the first worker. With a `place` of one worker: all that this process holds, also its
/// own values where the first worker's count. A tensor with several names is written once.
LOCKSTEP_API std::vector<HeldPiece> pieces_to_write(const std::vector<ObjectState>& objects, WriterPlace place);

}  // namespace lockstep::detail
