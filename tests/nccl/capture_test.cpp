#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::tests {
namespace {

using NcclCaptureTest = NcclRanksTest;

TEST_F(NcclCaptureTest, CollectivesAreCapturedAndReplayed) {
  run_nccl(2, [](const comm::Group& group) {
    const auto tensor = at::zeros({700'000}, at::device(kCard).dtype(at::kFloat));
    group.all_reduce_(tensor);  // connects
    c10::cuda::getCurrentCUDAStream().synchronize();
    group.barrier();
    at::cuda::CUDAGraph graph;
    graph.capture_begin({0, 0}, cudaStreamCaptureModeRelaxed);
    tensor.add_(1);
    group.all_reduce_(tensor, "mean");
    group.all_reduce_(tensor);
    graph.capture_end();
    EXPECT_TRUE(tensor.eq(0).all().item<bool>());
    float want = 0;
    for (int replay = 0; replay < 5; ++replay) {
      graph.replay();
      want = 2 * (want + 1);
      EXPECT_TRUE(tensor.eq(want).all().item<bool>()) << replay;
    }
    group.barrier();
  });
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
