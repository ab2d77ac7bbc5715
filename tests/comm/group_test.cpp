#include "lockstep/comm/group.h"

#include <atomic>
#include <limits>
#include <sstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "tests/support/ranks_as_threads.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::run_groups;
using ::testing::HasSubstr;

constexpr at::ScalarType kDtypes[] = {at::kByte,   at::kChar,         at::kShort,        at::kInt,
                                      at::kLong,   at::kHalf,         at::kBFloat16,     at::kFloat,
                                      at::kDouble, at::kComplexFloat, at::kComplexDouble};
constexpr int64_t kLengths[] = {0, 1, 37, 1031, 20011};

/// Values that depend on the rank, such that sums are rounded.
at::Tensor values_of(int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const auto ramp = at::arange(count, at::kDouble);
  if (c10::isIntegralType(dtype, false)) return at::remainder(ramp * 7 + rank * 13, 23).to(dtype).reshape(shape);
  const auto rough = at::sin(ramp * 0.7 + rank * 1.3) * at::exp(at::cos(ramp * 0.11 + rank) * 3);
  if (c10::isComplexType(dtype)) return at::complex(rough, rough.flip(0) + 1).to(dtype).reshape(shape);
  return rough.to(dtype).reshape(shape);
}

/// The plain computation in the stated order, in one thread.
at::Tensor expected(int size, at::IntArrayRef shape, at::ScalarType dtype, ReduceOp op) {
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  std::vector<at::Tensor> values;
  for (int rank = 0; rank < size; ++rank) {
    auto value = values_of(rank, shape, dtype);
    if (op == ReduceOp::Mean && c10::isIntegralType(dtype, false)) {
      value = value.to(value.element_size() <= 2 ? at::kFloat : at::kDouble);
    }
    values.push_back(narrow ? value.to(at::kFloat) : value);
  }
  for (size_t stride = 1; stride < values.size(); stride *= 2) {
    for (size_t i = 0; i + stride < values.size(); i += 2 * stride) {
      auto& a = values[i];
      const auto& b = values[i + stride];
      a = op == ReduceOp::Min       ? at::minimum(a, b)
          : op == ReduceOp::Max     ? at::maximum(a, b)
          : op == ReduceOp::Product ? at::mul(a, b)
                                    : at::add(a, b);
    }
  }
  if (op == ReduceOp::Mean && values[0].is_complex()) {
    values[0] = at::view_as_complex(at::div(at::view_as_real(values[0]), size));
  } else if (op == ReduceOp::Mean) {
    values[0] = at::div(values[0], size);
  }
  return narrow ? values[0].to(dtype) : values[0];
}

::testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return ::testing::AssertionFailure() << dtype_name(a.scalar_type()) << " against " << dtype_name(b.scalar_type());
  }
  if (a.sizes() != b.sizes()) return ::testing::AssertionFailure() << a.sizes() << " against " << b.sizes();
  const auto x = a.contiguous();
  const auto y = b.contiguous();
  if (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "values differ, first tensor\n" << x.flatten().slice(0, 0, 10);
}

std::string error_of(int size, const std::function<void(const Group&)>& body) {
  try {
    run_groups(size, body);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// Where the ranks of a group are: threads of one process, or of several workers.
struct Layout {
  std::string name;
  std::optional<lockstep::tests::EngineKind> engine;
  int num_workers = 1;
  int ranks_per_worker = 1;
};

Layout local(int size) { return {std::to_string(size) + "ranks", std::nullopt, 1, size}; }
Layout spread(lockstep::tests::EngineKind engine, int num_workers, int ranks_per_worker) {
  const std::string kind = engine == lockstep::tests::EngineKind::Shm ? "Shm" : "Messages";
  return {c10::str(kind, num_workers, "x", ranks_per_worker), engine, num_workers, ranks_per_worker};
}
std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

class GroupTest : public ::testing::TestWithParam<Layout> {
 protected:
  int size() const { return GetParam().num_workers * GetParam().ranks_per_worker; }
  /// Calls `body` on every rank of a group laid out as the parameter says; the first error is thrown here.
  void run_groups(const std::function<void(const Group&)>& body) const {
    if (!GetParam().engine) return lockstep::tests::run_groups(size(), body);
    for (const auto& error : lockstep::tests::run_worker_ranks(*GetParam().engine, GetParam().num_workers,
                                                               GetParam().ranks_per_worker, body)) {
      if (error) std::rethrow_exception(error);
    }
  }
  std::vector<ReduceOp> ops_for(at::ScalarType dtype) const {
    if (c10::isComplexType(dtype)) return {ReduceOp::Sum, ReduceOp::Mean};
    return {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product};
  }
};

INSTANTIATE_TEST_SUITE_P(Local, GroupTest, ::testing::Values(local(1), local(2), local(3), local(4), local(8)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Workers, GroupTest,
                         ::testing::Values(spread(lockstep::tests::EngineKind::Shm, 2, 1),
                                           spread(lockstep::tests::EngineKind::Shm, 2, 2),
                                           spread(lockstep::tests::EngineKind::Shm, 3, 1),
                                           spread(lockstep::tests::EngineKind::Messages, 2, 1),
                                           spread(lockstep::tests::EngineKind::Messages, 2, 2),
                                           spread(lockstep::tests::EngineKind::Messages, 3, 1),
                                           spread(lockstep::tests::EngineKind::Messages, 2, 3),
                                           spread(lockstep::tests::EngineKind::Messages, 3, 2)),
                         [](const auto& info) { return info.param.name; });

TEST_P(GroupTest, KnowsItself) {
  run_groups([&](const Group& group) {
    EXPECT_EQ(group.size(), size());
    EXPECT_EQ(group.name(), "test");
  });
}

TEST_P(GroupTest, AllReduceEqualsThePlainTree) {
  for (const auto dtype : kDtypes) {
    for (const int64_t length : kLengths) {
      for (const auto op : ops_for(dtype)) {
        SCOPED_TRACE(c10::str(dtype_name(dtype), " ", length, " ", op));
        const auto want = expected(size(), {length}, dtype, op);
        run_groups([&](const Group& group) {
          const auto mine = values_of(group.rank(), {length}, dtype);
          EXPECT_TRUE(same_bits(group.all_reduce(mine, op), want));
          EXPECT_TRUE(same_bits(mine, values_of(group.rank(), {length}, dtype)));
          if (op == ReduceOp::Mean && c10::isIntegralType(dtype, false)) return;
          group.all_reduce_(mine, op);
          EXPECT_TRUE(same_bits(mine, want));
        });
      }
    }
  }
}

TEST_P(GroupTest, ManyTensorsInOneCallHaveTheSameBits) {
  const std::vector<std::vector<int64_t>> shapes = {{3, 5}, {0}, {}, {4099}, {1}, {17, 129}};
  const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kInt, at::kFloat, at::kHalf, at::kBFloat16};
  run_groups([&](const Group& group) {
    std::vector<at::Tensor> mine;
    for (size_t i = 0; i < shapes.size(); ++i) mine.push_back(values_of(group.rank(), shapes[i], dtypes[i]));
    const auto results = group.all_reduce(mine);
    group.all_reduce_(mine);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto want = expected(size(), shapes[i], dtypes[i], ReduceOp::Sum);
      EXPECT_TRUE(same_bits(results[i], want));
      EXPECT_TRUE(same_bits(mine[i], want));
    }
    EXPECT_TRUE(group.all_reduce(std::vector<at::Tensor>{}).empty());
  });
}

TEST_P(GroupTest, NonContiguousTensors) {
  run_groups([&](const Group& group) {
    const auto whole = values_of(group.rank(), {6, 8}, at::kFloat);
    const auto want = expected(size(), {6, 8}, at::kFloat, ReduceOp::Sum);
    EXPECT_TRUE(same_bits(group.all_reduce(whole.t()), want.t()));
    auto columns = whole.clone().slice(1, 1, 8, 3);
    group.all_reduce_(columns);
    EXPECT_TRUE(same_bits(columns, want.slice(1, 1, 8, 3)));
    auto turned = whole.clone().t();
    group.reduce_(turned, 0);
    EXPECT_TRUE(same_bits(turned, group.rank() == 0 ? want.t() : whole.t()));
    const auto numbers = values_of(group.rank(), {5}, at::kComplexFloat);
    EXPECT_TRUE(same_bits(group.all_reduce(at::conj(numbers)),
                          at::conj(expected(size(), {5}, at::kComplexFloat, ReduceOp::Sum)).resolve_conj()));
  });
}

TEST_P(GroupTest, ProductOfComplexNumbers) {
  for (const auto dtype : {at::kComplexFloat, at::kComplexDouble}) {
    const auto want = expected(size(), {37}, dtype, ReduceOp::Product);
    run_groups([&](const Group& group) {
      EXPECT_TRUE(at::allclose(group.all_reduce(values_of(group.rank(), {37}, dtype), "product"), want, 1e-4));
    });
  }
}

TEST_P(GroupTest, SumsOfBooleansAreOrAndProductsAnd) {
  run_groups([&](const Group& group) {
    const auto mine = at::arange(40).eq(group.rank());
    const auto any = at::arange(40).lt(size());
    EXPECT_TRUE(same_bits(group.all_reduce(mine, "sum"), any));
    EXPECT_TRUE(same_bits(group.all_reduce(mine, "max"), any));
    EXPECT_TRUE(same_bits(group.all_reduce(mine.logical_not(), "product"), any.logical_not()));
    EXPECT_TRUE(same_bits(group.all_reduce(mine.logical_not(), "min"), any.logical_not()));
    const std::vector<at::Tensor> in_place{mine.clone()};
    group.all_reduce_(in_place, "sum");
    EXPECT_TRUE(same_bits(in_place[0], any));
  });
}

TEST_P(GroupTest, CallsOfDifferentOwnersDoNotMatch) {
  if (size() == 1) GTEST_SKIP() << "one rank";
  try {
    run_groups([&](const Group& group) {
      const CollectiveOwnerScope outer({"optimizer", 7, "step"});
      group.all_reduce(at::ones({2}));
      const uint64_t number = group.rank() == 0 ? 0 : 1;
      const CollectiveOwnerScope owner({"optimizer", number, "step"});
      group.all_reduce(at::ones({2}));
    });
    ADD_FAILURE() << "the owners differ";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("all_reduce(step of optimizer 0, SUM, float32[2])"),
                                    HasSubstr("all_reduce(step of optimizer 1, SUM, float32[2])")));
  }
}

TEST_P(GroupTest, MinAndMaxPassNanOn) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    run_groups([&](const Group& group) {
      auto mine = at::zeros({40}, dtype);
      mine[group.rank()] = std::numeric_limits<double>::quiet_NaN();
      for (const auto op : {ReduceOp::Min, ReduceOp::Max}) {
        const auto result = at::isnan(group.all_reduce(mine, op));
        EXPECT_EQ(result.sum().item<int64_t>(), size());
        EXPECT_TRUE(result.slice(0, 0, size()).all().item<bool>());
      }
    });
  }
}

TEST_P(GroupTest, SparseTensorsAreConcatenated) {
  run_groups([&](const Group& group) {
    const int rank = group.rank();
    const auto indices = at::arange(rank + 1, at::kLong).unsqueeze(0);
    const auto values = at::full({rank + 1, 2}, rank + 1.0, at::kFloat);
    const auto sparse = at::sparse_coo_tensor(indices, values, {10, 2});
    const std::vector<at::Tensor> mine = {sparse, at::ones({3})};
    const auto results = group.all_reduce(mine, ReduceOp::Mean);
    EXPECT_EQ(results[0]._nnz(), size() * (size() + 1) / 2);
    EXPECT_EQ(results[0]._indices()[0][0].item<int64_t>(), 0);
    EXPECT_FLOAT_EQ(results[0]._values()[results[0]._nnz() - 1][1].item<float>(), 1.0F);
    EXPECT_TRUE(at::equal(results[1], at::ones({3})));
    group.all_reduce_(sparse);
    double sum = 0;
    for (int r = 0; r < size(); ++r) sum += 2.0 * (r + 1) * (r + 1);
    EXPECT_FLOAT_EQ(sparse.to_dense().sum().item<float>(), static_cast<float>(sum));
  });
}

TEST_P(GroupTest, ReduceLeavesTheResultOnTheRoot) {
  const int root = size() - 1;
  const auto want = expected(size(), {1031}, at::kFloat, ReduceOp::Mean);
  run_groups([&](const Group& group) {
    const auto mine = values_of(group.rank(), {1031}, at::kFloat);
    const auto result = group.reduce(mine, root, ReduceOp::Mean);
    EXPECT_EQ(result.defined(), group.rank() == root);
    if (result.defined()) {
      EXPECT_TRUE(same_bits(result, want));
    }
    const auto before = mine.clone();
    group.reduce_(mine, root, ReduceOp::Mean);
    EXPECT_TRUE(same_bits(mine, group.rank() == root ? want : before));
  });
}

TEST_P(GroupTest, BroadcastLeavesTheRootsValues) {
  const int root = size() / 2;
  for (const auto dtype : {at::kFloat, at::kBool, at::kLong, at::kComplexDouble}) {
    run_groups([&](const Group& group) {
      const auto want = dtype == at::kBool ? at::ones({3, 4}, at::kBool) : values_of(root, {3, 4}, dtype);
      auto mine = group.rank() == root ? want.clone() : at::zeros_like(want);
      EXPECT_TRUE(same_bits(group.broadcast(mine, root), want));
      auto turned = at::zeros({4, 3}, want.options()).t();
      if (group.rank() == root) turned.copy_(want);
      group.broadcast_({mine, turned}, root);
      EXPECT_TRUE(same_bits(mine, want));
      EXPECT_TRUE(same_bits(turned, want));
    });
  }
}

TEST_P(GroupTest, GathersAlongAnyDimension) {
  for (const int64_t dim : {0L, 1L, -1L}) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < size(); ++rank) {
      const int64_t own = rank % 3;
      parts.push_back(
          values_of(rank, dim == 0 ? std::vector<int64_t>{own, 5} : std::vector<int64_t>{5, own}, at::kFloat));
    }
    const auto want = at::cat(parts, dim);
    run_groups([&](const Group& group) {
      const auto& mine = parts[static_cast<size_t>(group.rank())];
      EXPECT_TRUE(same_bits(group.all_gather(mine, dim), want));
      const auto rooted = group.gather(mine, dim, size() - 1);
      EXPECT_EQ(rooted.defined(), group.rank() == size() - 1);
      if (rooted.defined()) {
        EXPECT_TRUE(same_bits(rooted, want));
      }
    });
  }
}

TEST_P(GroupTest, ReduceScatterSharesTheRows) {
  for (const int64_t rows : {0L, 1L, 7L, 16L}) {
    const auto want = expected(size(), {rows, 3}, at::kFloat, ReduceOp::Sum);
    run_groups([&](const Group& group) {
      const auto share = row_share(rows, group.rank(), size());
      const auto result = group.reduce_scatter(values_of(group.rank(), {rows, 3}, at::kFloat));
      EXPECT_TRUE(same_bits(result, want.narrow(0, share.begin, share.count)));
    });
  }
}

TEST_P(GroupTest, BarrierReturnsWhenAllHaveCalled) {
  std::atomic<int> arrived{0};
  run_groups([&](const Group& group) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      group.barrier();
      EXPECT_GE(arrived.load(), round * size());
    }
  });
}

TEST_P(GroupTest, ThousandsOfTinyReductions) {
  run_groups([&](const Group& group) {
    const std::vector<at::Tensor> mine = {at::ones({3})};
    for (int i = 0; i < 3000; ++i) group.all_reduce_(mine, ReduceOp::Mean);
    EXPECT_TRUE(at::equal(mine[0], at::ones({3})));
    group.barrier();
  });
}

TEST(GroupErrorTest, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_reduce(at::ones({2}, at::kBool), "mean"); }),
              HasSubstr("[all_reduce] bool has no mean"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_reduce(at::ones({2}, at::kComplexHalf), "product"); }),
              HasSubstr("complex numbers of half precision have no product"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_reduce_(at::ones({2}, at::kInt), "mean"); }),
              HasSubstr("[all_reduce_] the mean of integers is floating point"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_reduce(at::ones({2}, at::kComplexFloat), "max"); }),
              HasSubstr("complex numbers have no order"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_reduce(at::Tensor()); }), HasSubstr("must be defined"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_gather(at::ones({})); }),
              HasSubstr("a scalar cannot be gathered"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.all_gather(at::ones({2}), 1); }), HasSubstr("dim=1, shape=[2]"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.broadcast(at::ones({2}), 2); }), HasSubstr("root=2"));
  EXPECT_THAT(error_of(2, [](const Group& g) { g.broadcast(at::ones({2}).to_sparse(), 0); }),
              HasSubstr("must be dense"));
  EXPECT_THAT(error_of(1, [](const Group& g) { g.all_reduce(at::ones({2}), "sum", {.bytes_per_pack = -1}); }),
              HasSubstr("bytes_per_pack=-1"));
}

TEST(GroupErrorTest, RanksThatDisagreeAreNamed) {
  const auto shapes = error_of(2, [](const Group& g) { g.all_reduce(at::ones({2 + g.rank()})); });
  EXPECT_THAT(shapes, HasSubstr("rank 0 calls all_reduce(SUM, float32[2]), rank 1 calls all_reduce(SUM, float32[3])"));
  const auto dims = error_of(2, [](const Group& g) { g.all_gather(at::ones({2, 2 + g.rank()})); });
  EXPECT_THAT(
      dims, HasSubstr("rank 0 calls all_gather(float32[2, 2], dim 0), rank 1 calls all_gather(float32[2, 3], dim 0)"));
  const auto layouts =
      error_of(2, [](const Group& g) { g.all_reduce(g.rank() == 0 ? at::ones({2}) : at::ones({2}).to_sparse()); });
  EXPECT_THAT(layouts, HasSubstr("rank 1 calls all_reduce(SUM, Sparse float32[2])"));
}

TEST(GroupErrorTest, TimeoutOfOneCall) {
  EXPECT_THAT(error_of(2,
                       [](const Group& g) {
                         if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
                         g.barrier({.timeout_seconds = 0.02});
                       }),
              HasSubstr("timeout=0.02 s"));
}

TEST(GroupAutogradTest, InPlaceResultsAreSeenByAutograd) {
  run_groups(2, [](const Group& group) {
    const auto mine = at::ones({3});
    const auto before = mine._version();
    group.all_reduce_(mine);
    EXPECT_GT(mine._version(), before);
  });
}

}  // namespace
}  // namespace lockstep::comm
