#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"

/// Internal: which elements of which parameters belong to which replica (see `UpdateMethod::Divided`).
namespace lockstep::detail {

/// Some elements of a parameter, and where they are in a flat tensor.
struct DividedPiece {
  UpdateChunk where;
  int64_t offset = 0;
};

/// Elements of parameters of one dtype on one device, which one collective sums or gathers. Its flat tensor has
/// `num_ranks * part` elements, of which rank r owns `part` from `r * part` on; zeros follow the last piece.
struct DividedBucket {
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10::Device device{c10::DeviceType::CPU};
  int64_t part = 0;
  /// One behind the other, from offset 0 on.
  std::vector<DividedPiece> pieces = {};

  int64_t num_elements() const { return pieces.empty() ? 0 : pieces.back().offset + pieces.back().where.size(); }
  /// Returns what a rank owns of the bucket; offsets are those in its part.
  LOCKSTEP_API std::vector<DividedPiece> owned_by(int rank) const;
};

/// Divides the parameters with a one in `divided` into buckets. Parameters follow each other from the last to the
/// first, in about the order in which backward reaches them; a large one may be in several buckets. No flat tensor is
/// larger than `bytes_per_bucket`, or than the smallest that has a whole cache line for each rank.
LOCKSTEP_API std::vector<DividedBucket> divide(const std::vector<at::Tensor>& parameters,
                                               const std::vector<char>& divided, int num_ranks,
                                               int64_t bytes_per_bucket);

}  // namespace lockstep::detail
