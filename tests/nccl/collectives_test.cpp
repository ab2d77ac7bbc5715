#include <limits>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

using NcclCollectivesTest = NcclRanksTest;

constexpr ReduceOp::Kind kOps[] = {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product};

at::Tensor values_of(int rank, at::ScalarType dtype) {
  if (dtype == at::kBool) return (at::arange(1031) + rank).remainder(3).eq(0);
  const auto ramp = at::arange(1031, at::kDouble) * 0.7 + rank * 1.3;
  return (at::sin(ramp) * 5).to(dtype);
}

bool is_exact(at::ScalarType dtype, ReduceOp op) {
  return !at::isFloatingType(dtype) || op == ReduceOp::Min || op == ReduceOp::Max;
}

void expect_near(const at::Tensor& got, const at::Tensor& want, bool exact) {
  ASSERT_EQ(got.scalar_type(), want.scalar_type());
  if (exact) {
    EXPECT_TRUE(at::equal(got, want));
    return;
  }
  const bool is_narrow = want.scalar_type() == at::kHalf || want.scalar_type() == at::kBFloat16;
  EXPECT_TRUE(
      at::allclose(got.to(at::kDouble), want.to(at::kDouble), is_narrow ? 3e-2 : 1e-5, is_narrow ? 3e-1 : 1e-5));
}

/// Every operation of every dtype, against the CPU.
void expect_as_on_cpu(int size, at::ScalarType dtype) {
  run_nccl(size, [&](const comm::Group& group) {
    for (const ReduceOp op : kOps) {
      if (dtype == at::kBool && op == ReduceOp::Mean) continue;
      SCOPED_TRACE(c10::str(size, " ranks, ", dtype, ", ", op));
      const auto mine = values_of(group.rank(), dtype);
      const auto want = group.all_reduce(mine, op);
      const auto there = mine.to(kCard);
      const bool exact = is_exact(dtype, op) && (op != ReduceOp::Mean || at::isFloatingType(dtype));
      expect_near(group.all_reduce(there, op).cpu(), want, exact);
      const auto rooted = group.reduce(there, size - 1, op);
      EXPECT_EQ(rooted.defined(), group.rank() == size - 1);
      if (rooted.defined()) expect_near(rooted.cpu(), want, exact);
      expect_near(group.reduce_scatter(there, op).cpu(), group.reduce_scatter(mine, op), exact);
      const auto even = there.narrow(0, 0, 12 * size);
      expect_near(group.reduce_scatter(even, op).cpu(), group.reduce_scatter(even.cpu(), op), exact);
      if (op == ReduceOp::Mean && !at::isFloatingType(dtype)) continue;
      const auto changed = there.clone();
      group.all_reduce_(changed, op);
      expect_near(changed.cpu(), want, exact);
    }
  });
}

TEST_F(NcclCollectivesTest, ReductionsOfTwoRanks) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kShort,
                           at::kInt, at::kLong, at::kBool}) {
    expect_as_on_cpu(2, dtype);
  }
}

TEST_F(NcclCollectivesTest, ReductionsOfMoreRanks) {
  for (const int size : {3, 4}) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kLong, at::kBool}) expect_as_on_cpu(size, dtype);
  }
}

TEST_F(NcclCollectivesTest, NanPassesMinimumAndMaximum) {
  run_nccl(3, [](const comm::Group& group) {
    auto mine = at::arange(6, at::kFloat) * (group.rank() + 1);
    if (group.rank() == 1) mine[4] = std::numeric_limits<float>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
      const auto got = group.all_reduce(mine.to(kCard), op).cpu();
      EXPECT_TRUE(got.isnan()[4].item<bool>());
      EXPECT_EQ(got.isnan().sum().item<int64_t>(), 1);
    }
  });
}

TEST_F(NcclCollectivesTest, TheMeanIsAQuotient) {
  run_nccl(3, [](const comm::Group& group) {
    const auto mine = at::arange(1, 5000, at::kFloat) * (group.rank() == 0 ? 1 : 0);
    EXPECT_TRUE(at::equal(group.all_reduce(mine.to(kCard), "mean").cpu(), group.all_reduce(mine, "mean")));
  });
}

TEST_F(NcclCollectivesTest, ManyTensorsOfAllShapes) {
  run_nccl(2, [](const comm::Group& group) {
    const auto options = at::device(kCard).dtype(at::kFloat);
    const float own = static_cast<float>(group.rank() + 1);
    std::vector<at::Tensor> tensors{at::full({3, 5}, own, options).t(), at::full({}, own, options),
                                    at::full({0}, own, options), at::full({3'000'000}, own, options)};
    for (const int64_t bytes : {int64_t(0), int64_t(16)}) {
      const CommunicationOptions packs{.bytes_per_pack = bytes};
      for (const auto& sum : group.all_reduce(tensors, "sum", packs)) EXPECT_TRUE(sum.eq(3).all().item<bool>());
    }
    group.all_reduce_(tensors);
    for (const auto& sum : tensors) EXPECT_TRUE(sum.eq(3).all().item<bool>());
    group.all_reduce_(std::vector<at::Tensor>{});
    const auto complex = at::full({4}, c10::complex<double>(own, 1), at::device(kCard).dtype(at::kComplexDouble));
    EXPECT_TRUE(group.all_reduce(complex).eq(c10::complex<double>(3, 2)).all().item<bool>());
    EXPECT_EQ(group.all_reduce(at::ones({3}, options).to_sparse())._nnz(), 6);
  });
}

TEST_F(NcclCollectivesTest, BroadcastAndGather) {
  run_nccl(3, [](const comm::Group& group) {
    const int rank = group.rank();
    const auto mine = (at::arange(2 * (rank + 1), at::kFloat) + 10 * rank).view({rank + 1, 2});
    const std::vector<std::pair<at::Tensor, int64_t>> cases{
        {mine, 0}, {mine.t(), 1}, {mine.to(at::kComplexFloat), 0}, {mine.to(at::kShort), 0}};
    for (const auto& [tensor, dim] : cases) {
      EXPECT_TRUE(at::equal(group.all_gather(tensor.to(kCard), dim).cpu(), group.all_gather(tensor, dim)));
      const auto want = group.gather(tensor, dim, 1);
      const auto got = group.gather(tensor.to(kCard), dim, 1);
      EXPECT_EQ(got.defined(), want.defined());
      if (want.defined()) {
        EXPECT_TRUE(at::equal(got.cpu(), want));
      }
    }
    const auto even = at::full({2, 3}, static_cast<double>(rank), at::kFloat);
    for (const int64_t dim : {0, 1}) {
      EXPECT_TRUE(at::equal(group.all_gather(even.to(kCard), dim).cpu(), group.all_gather(even, dim)));
    }
    const auto there = even.to(kCard);
    EXPECT_TRUE(group.broadcast(there, 0).eq(0).all().item<bool>());
    EXPECT_TRUE(group.broadcast(there.t(), 1).eq(1).all().item<bool>());
    group.broadcast_(there, 1);
    EXPECT_TRUE(there.eq(1).all().item<bool>());
  });
}

TEST_F(NcclCollectivesTest, AllToAll) {
  run_nccl(3, [](const comm::Group& group) {
    const std::vector<int64_t> split{1, group.rank(), 2};
    const auto mine = (at::arange(3 + group.rank(), at::kLong) + 100 * group.rank()).unsqueeze(1).expand({-1, 4});
    comm::RowCounts counts;
    const auto got = group.all_to_all(std::vector<at::Tensor>{mine.to(kCard)}, split, {}, &counts);
    comm::RowCounts want_counts;
    const auto want = group.all_to_all(std::vector<at::Tensor>{mine}, split, {}, &want_counts);
    EXPECT_TRUE(at::equal(got[0].cpu(), want[0]));
    EXPECT_EQ(counts, want_counts);
    const auto large = at::full({3, 400'000}, static_cast<double>(group.rank()), at::device(kCard).dtype(at::kFloat));
    const auto received = group.all_to_all(large);
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(received[rank].eq(rank).all().item<bool>());
  });
}

TEST_F(NcclCollectivesTest, WithinAndBarrier) {
  run_nccl(4, [](const comm::Group& group) {
    const auto pairs = group.within(comm::RankGroups({{0, 1}, {2, 3}}));
    const auto mine = at::full({3}, group.rank() + 1.0, at::device(kCard));
    EXPECT_TRUE(pairs.all_reduce(mine).eq(group.rank() < 2 ? 3 : 7).all().item<bool>());
    group.barrier();
  });
}

TEST_F(NcclCollectivesTest, DeterministicHasTheBitsOfTheCpu) {
  run_nccl(3, [](const comm::Group& group) {
    const CommunicationOptions exact{.deterministic = true};
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      for (const ReduceOp op : kOps) {
        const auto mine = values_of(group.rank(), dtype);
        EXPECT_TRUE(at::equal(group.all_reduce(mine.to(kCard), op, exact).cpu(), group.all_reduce(mine, op)));
      }
    }
  });
}

TEST_F(NcclCollectivesTest, NcclThatCannotBeUsedIsAnError) {
  run_nccl(2, [](const comm::Group& group) {
    const CommunicationOptions nccl{.implementation = "nccl"};
    const auto mine = at::ones({3}, at::device(kCard));
    EXPECT_TRUE(group.all_reduce(mine, "sum", nccl).eq(2).all().item<bool>());
    EXPECT_THROW(group.all_reduce(mine.to(at::kShort), "sum", nccl), c10::NotImplementedError);
    EXPECT_THROW(group.all_reduce(mine.cpu(), "sum", nccl), c10::ValueError);
    EXPECT_THROW(group.all_reduce(mine, "sum", {.implementation = "nccl", .deterministic = true}), c10::ValueError);
    EXPECT_TRUE(group.all_reduce(mine, "sum", {.implementation = "ring"}).eq(2).all().item<bool>());
  });
}

TEST_F(NcclCollectivesTest, AMismatchNamesBothSides) {
  const NcclRanks ranks(2);
  const auto different = [](const comm::Group& group) {
    group.all_reduce(at::ones({group.rank() + 3}, at::device(kCard)));
  };
  const auto mismatches = ranks.run(different);
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(mismatches[rank], HasSubstr("float32[3]"));
    EXPECT_THAT(mismatches[rank], HasSubstr("float32[4]"));
  }
  const auto errors = ranks.run([](const comm::Group& group) {
    group.all_reduce(at::ones({3}, at::device(kCard)), "sum", {.deterministic = group.rank() == 1});
  });
  EXPECT_THAT(errors[0], HasSubstr("by NCCL"));
  EXPECT_THAT(errors[1], HasSubstr("by NCCL"));
  ranks.run_well([](const comm::Group& group) { group.all_reduce(at::ones({3}, at::device(kCard))); });
}

}  // namespace
}  // namespace lockstep::tests
