#include "lockstep/strategy/state/worker_pieces.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/state/flip_bits.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kBytesPerCollective = int64_t{32} << 20;

/// Every byte is zero on all workers but one, so that the largest is that worker's.
at::Tensor gather_pieces(const StrategyImpl& strategy, const StateTensor& tensor) {
  check_cross_replica(strategy, "StateTensor::read", "read it outside of `run`");
  const at::NoGradGuard no_grad;
  const at::Tensor whole = at::zeros(tensor.sizes, at::device(at::kCPU).dtype(tensor.dtype));
  if (whole.numel() == 0) return whole;
  for (const StatePiece& piece : tensor.pieces) {
    at::Tensor place = whole.view(-1).slice(0, piece.begin, piece.end());
    place.copy_(piece.values.cpu().view(-1));
    flip_bits(place, piece.flipped);
  }
  const at::Tensor bytes =
      at::from_blob(whole.data_ptr(), {static_cast<int64_t>(whole.nbytes())}, at::TensorOptions().dtype(at::kByte));
  for (int64_t begin = 0; begin < bytes.numel(); begin += kBytesPerCollective) {
    at::Tensor part = bytes.slice(0, begin, std::min(begin + kBytesPerCollective, bytes.numel()));
    part.copy_(strategy.worker_group()->all_reduce(part, ReduceOp::Max));
  }
  return whole;
}

}  // namespace

void gather_from_workers(const std::shared_ptr<const StrategyImpl>& strategy, StateTensor& tensor) {
  StateTensor held = tensor;
  held.gather = {};
  tensor.gather = [strategy, held] { return gather_pieces(*strategy, held); };
}

void keep_on_first_worker(const std::shared_ptr<const StrategyImpl>& strategy, StateTensor& tensor) {
  if (strategy->num_workers() == 1) return;
  tensor.own = tensor.pieces;
  if (strategy->worker() != 0) tensor.pieces.clear();
  gather_from_workers(strategy, tensor);
}

}  // namespace lockstep::detail
