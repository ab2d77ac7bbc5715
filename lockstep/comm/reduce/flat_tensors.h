#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "lockstep/base/reduce_op.h"

namespace lockstep::comm {

/// What one rank publishes for a reduction: where each of its tensors is read and written, as one concatenation.
///
/// Tensors that are not contiguous are read from, or written to, contiguous copies that this object owns.
class FlatTensors {
 public:
  struct Piece {
    const char* input = nullptr;
    char* output = nullptr;
    int64_t count = 0;
    at::ScalarType dtype = at::ScalarType::Undefined;
    /// Where the piece begins in the concatenation of all pieces, a multiple of kAlignment.
    int64_t offset = 0;
  };

  /// Parts of ranks begin on cache lines.
  static constexpr int64_t kAlignment = 64;

  /// `outputs` may be empty, for a rank that gets no result.
  FlatTensors(at::TensorList inputs, at::TensorList outputs);

  /// A copy of `pieces`, whose addresses may then be replaced. Offsets and `bytes` are those of the original.
  FlatTensors(std::span<const Piece> pieces, int64_t bytes) : pieces_(pieces.begin(), pieces.end()), bytes_(bytes) {}

  std::span<const Piece> pieces() const { return {pieces_.data(), pieces_.size()}; }
  std::span<Piece> pieces() { return {pieces_.data(), pieces_.size()}; }
  int64_t bytes() const { return bytes_; }

  /// Copies results from contiguous copies to the outputs. Called after depart.
  void deliver() const;

 private:
  c10::SmallVector<Piece, 4> pieces_;
  /// Contiguous copies, and the outputs that they replace (undefined for inputs).
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> copies_;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::comm
