#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "lockstep/base/reduce_op.h"

namespace lockstep::comm {

/// What one rank lays open to the others in a reduction: where each of its tensors is read and written.
///
/// Tensors that are not contiguous are read from, or written to, contiguous copies that live in the parcel.
class Parcel {
 public:
  struct Piece {
    const char* input = nullptr;
    char* output = nullptr;
    int64_t count = 0;
    at::ScalarType dtype = at::ScalarType::Undefined;
    /// Where the piece begins in the concatenation of all pieces, a multiple of kAlignment.
    int64_t offset = 0;
  };

  /// Cuts between ranks fall on cache lines.
  static constexpr int64_t kAlignment = 64;

  /// `outputs` may be empty, for a rank that gets no result.
  Parcel(at::TensorList inputs, at::TensorList outputs);

  /// Pieces that lie where somebody else says; their offsets and `bytes` are those of the parcel they were taken from.
  Parcel(std::span<const Piece> pieces, int64_t bytes) : pieces_(pieces.begin(), pieces.end()), bytes_(bytes) {}

  std::span<const Piece> pieces() const { return {pieces_.data(), pieces_.size()}; }
  std::span<Piece> pieces() { return {pieces_.data(), pieces_.size()}; }
  int64_t bytes() const { return bytes_; }

  /// Brings results from contiguous copies to where they belong. After depart.
  void deliver() const;

 private:
  c10::SmallVector<Piece, 4> pieces_;
  /// Contiguous stand-ins, and the outputs that they stand in for (undefined for inputs).
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> copies_;
  int64_t bytes_ = 0;
};

/// Reduces the part [begin, end) of the concatenation, in bytes, over `parcels` into the outputs of `targets`.
void reduce_part(std::span<const Parcel* const> parcels, std::span<const Parcel* const> targets, ReduceOp op,
                 int64_t begin, int64_t end);

}  // namespace lockstep::comm
