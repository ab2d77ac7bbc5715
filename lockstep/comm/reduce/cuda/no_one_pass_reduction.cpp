#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/cuda/one_pass_reduction.h"

namespace lockstep::comm {

bool has_one_pass_kernel(at::ScalarType /*dtype*/, ReduceOp /*op*/, size_t /*num_ranks*/) { return false; }

bool can_reduce_in_one_pass(std::span<const c10::Device> /*devices*/, std::span<const at::ScalarType> /*dtypes*/,
                            ReduceOp /*op*/, size_t /*num_ranks*/) {
  return false;
}

void reduce_in_one_pass(c10::Device /*device*/, ReduceOp /*op*/, const std::vector<PieceToReduce>& /*pieces*/) {
  LOCKSTEP_ASSERT(false, "built without CUDA");
}

}  // namespace lockstep::comm
