#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/group.h"
#include "tests/support/ranks_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::run_groups;

/// Ranks share one GPU, or use several where there are.
class GroupCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || num_gpus() == 0) GTEST_SKIP() << "no CUDA device";
  }

  static int num_gpus() { return c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount(); }

  static at::Device device_of(int rank) { return {at::kCUDA, static_cast<at::DeviceIndex>(rank % num_gpus())}; }

  /// Expects the bits of the CPU from every operation.
  static void expect_as_on_cpu(int size, at::ScalarType dtype, ReduceOp op) {
    run_groups(size, [&](const Group& group) {
      const auto ramp = at::arange(1031, at::kDouble) * 0.7 + group.rank() * 1.3;
      const auto mine = (at::sin(ramp) * 9).to(dtype);
      const auto want = group.all_reduce(mine, op);
      auto there = mine.to(device_of(group.rank()));
      const auto result = group.all_reduce(there, op);
      EXPECT_EQ(result.device(), there.device());
      EXPECT_TRUE(at::equal(result.cpu(), want));
      group.all_reduce_(there, op);
      EXPECT_TRUE(at::equal(there.cpu(), want));
    });
  }
};

TEST_F(GroupCudaTest, AllReduceHasTheBitsOfTheCpu) {
  for (const int size : {2, 3, 4}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
        SCOPED_TRACE(c10::str(size, " ranks, ", dtype, ", ", op));
        expect_as_on_cpu(size, dtype, op);
      }
    }
  }
}

TEST_F(GroupCudaTest, OtherCollectives) {
  run_groups(3, [&](const Group& group) {
    const int rank = group.rank();
    const auto mine = at::full({rank + 1, 2}, static_cast<double>(rank), at::kFloat).to(device_of(rank));
    EXPECT_EQ(group.all_gather(mine).size(0), 6);
    const auto rooted = group.gather(mine, 0, 1);
    EXPECT_EQ(rooted.defined(), rank == 1);
    const auto same = at::full({4}, static_cast<double>(rank), at::kFloat).to(device_of(rank));
    EXPECT_TRUE(at::equal(group.broadcast(same, 2).cpu(), at::full({4}, 2.0)));
    EXPECT_TRUE(at::equal(group.reduce_scatter(same).cpu(), at::full({rank == 0 ? 2 : 1}, 3.0)));
    EXPECT_EQ(group.reduce(same, 0).defined(), rank == 0);
    group.broadcast_(same, 2);
    EXPECT_TRUE(at::equal(same.cpu(), at::full({4}, 2.0)));
    EXPECT_EQ(group.all_reduce(at::ones({3}).to_sparse().to(device_of(rank)))._nnz(), 9);
    group.barrier();
  });
}

TEST_F(GroupCudaTest, ImplementationOfOneCall) {
  run_groups(2, [&](const Group& group) {
    const auto mine = at::full({3}, group.rank() + 1.0).to(device_of(group.rank()));
    const CommunicationOptions ring{.implementation = CommunicationImplementation::Ring};
    const auto sum = group.all_reduce(mine, "sum", ring);
    EXPECT_EQ(sum.device(), mine.device());
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({3}, 3.0)));
    EXPECT_EQ(group.all_gather(mine, 0, ring).device(), mine.device());
    EXPECT_EQ(group.reduce_scatter(mine, "sum", ring).size(0), group.rank() == 0 ? 2 : 1);
    EXPECT_EQ(group.reduce(mine, 1, "sum", ring).defined(), group.rank() == 1);
    group.broadcast_(mine, 1, ring);
    EXPECT_TRUE(at::equal(mine.cpu(), at::full({3}, 2.0)));
    EXPECT_THROW(group.all_reduce(mine, "sum", {.implementation = CommunicationImplementation::Nccl}),
                 c10::NotImplementedError)
        << "threads of one process do not use NCCL";
  });
}

TEST_F(GroupCudaTest, KindsOfDeviceDoNotMix) {
  EXPECT_ANY_THROW(run_groups(2, [&](const Group& group) {
    group.all_reduce(group.rank() == 0 ? at::ones({2}) : at::ones({2}).to(device_of(1)));
  }));
  EXPECT_ANY_THROW(run_groups(2, [&](const Group& group) {
    group.all_reduce(std::vector<at::Tensor>{at::ones({2}), at::ones({2}).to(device_of(0))});
  }));
}

}  // namespace
}  // namespace lockstep::comm
