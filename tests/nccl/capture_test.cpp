#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/replay/pure.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::tests {
namespace {

using NcclCaptureTest = NcclReplicasTest;

TEST_F(NcclCaptureTest, CollectivesOfReplicasAreCapturedAndReplayed) {
  MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const auto step = [](const at::Tensor& x) {
    const auto context = get_replica_context();
    const at::Tensor sum = context.all_reduce("sum", x * (context.replica_id_in_sync_group() + 1));
    return context.all_reduce("mean", sum + x);
  };
  auto pure = strategy.pure(step);
  for (int call = 1; call <= 8; ++call) {
    const auto x = at::full({700'000}, static_cast<double>(call), at::device(kCard).dtype(at::kFloat));
    for (const at::Tensor& result : strategy.local_results(pure(x))) {
      EXPECT_TRUE(result.eq(4 * call).all().item<bool>()) << call;
    }
  }
  EXPECT_TRUE(pure.is_replayed()) << pure.why_not();
}

TEST_F(NcclCaptureTest, RanksConnectBeforeACapture) {
  const NcclRanks ranks(1);
  at::cuda::CUDAGraph graph;
  const c10::StreamGuard guard(c10::cuda::getStreamFromPool());
  const auto tensor = at::zeros({3}, at::device(kCard).dtype(at::kFloat));
  graph.capture_begin();
  const comm::DeviceOperation sum{.input = tensor.data_ptr(), .output = tensor.data_ptr(), .count = 3};
  const comm::RankOperations work{0, {&sum, 1}};
  EXPECT_THROW(ranks.collectives().run({&work, 1}, {"all_reduce", {}}), ContextError);
  graph.capture_end();
}

}  // namespace
}  // namespace lockstep::tests
