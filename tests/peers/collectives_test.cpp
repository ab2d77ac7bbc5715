// What the suites of DistributedDataParallel and Horovod pin of collectives, under every strategy. README.md has the
// tables.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

class PeerCollectivesTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  static int own_id() { return get_replica_context().replica_id_in_sync_group(); }

  /// 1 + 2 + ... + n for n replicas.
  double sum_of_ids() const { return named.replicas * (named.replicas + 1) / 2.0; }

  /// Complex tensors stay on the CPU in traced replicas.
  c10::Device device_for(at::ScalarType dtype) const {
    return named.is_traced() && at::isComplexType(dtype) ? c10::Device(at::kCPU) : named.device;
  }

  torch::Tensor filled(at::IntArrayRef sizes, double value, at::ScalarType dtype) const {
    return torch::full(sizes, value, torch::TensorOptions(torch::kDouble).device(torch::kCPU))
        .to(dtype)
        .to(device_for(dtype));
  }

  static std::vector<std::vector<int64_t>> shapes() { return {{}, {17}, {5, 3}, {2, 3, 4}, {0}, {3, 0}}; }

  // Traced replicas compile a program for each.
  std::vector<at::ScalarType> integers() const {
    if (named.is_traced()) return {at::kByte, at::kLong};
    return {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
  }
  std::vector<at::ScalarType> floats() const {
    if (named.is_traced()) return {at::kBFloat16, at::kFloat};
    return {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  }
  static std::vector<at::ScalarType> complexes() { return {at::kComplexFloat, at::kComplexDouble}; }

  /// Reduces a tensor of each shape, alone and all in one call, and leaves the arguments as they are.
  void expect_reduced(ReduceOp op, at::ScalarType dtype, double wanted) const {
    strategy.run([&] {
      std::vector<torch::Tensor> own;
      for (const auto& shape : shapes()) own.push_back(filled(shape, own_id() + 1, dtype));
      const auto together = get_replica_context().all_reduce(op, own);
      for (size_t i = 0; i < own.size(); ++i) {
        const auto alone = named.is_traced() ? together[i] : get_replica_context().all_reduce(op, own[i]);
        const auto on_cpu = torch::TensorOptions(torch::kDouble).device(torch::kCPU);
        const auto expected = torch::full(shapes()[i], wanted, on_cpu).to(alone.scalar_type());
        EXPECT_TRUE(torch::equal(alone.cpu(), expected.cpu())) << op << " of " << dtype << " gave " << alone;
        EXPECT_TRUE(torch::equal(together[i].cpu(), expected.cpu()))
            << op << " of " << dtype << " gave " << together[i];
        EXPECT_TRUE(torch::equal(own[i].cpu(), filled(shapes()[i], own_id() + 1, dtype).cpu())) << "it was written to";
      }
    });
  }

  template <class F>
  static std::string error_of(const F& function) {
    try {
      function();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(PeerCollectivesTest, SumsOfEveryDtypeAndShape) {
  for (const auto dtype : integers()) expect_reduced("sum", dtype, sum_of_ids());
  for (const auto dtype : floats()) expect_reduced("sum", dtype, sum_of_ids());
  for (const auto dtype : complexes()) expect_reduced("sum", dtype, sum_of_ids());
}

TEST_P(PeerCollectivesTest, MeansOfEveryDtypeAndShape) {
  const double mean = sum_of_ids() / named.replicas;
  for (const auto dtype : integers()) expect_reduced("mean", dtype, mean);
  for (const auto dtype : floats()) expect_reduced("mean", dtype, mean);
  for (const auto dtype : complexes()) expect_reduced("mean", dtype, mean);
}

TEST_P(PeerCollectivesTest, MinimaAndMaximaOfEveryDtypeAndShape) {
  for (const auto& dtypes : {integers(), floats()}) {
    for (const auto dtype : dtypes) {
      expect_reduced("min", dtype, 1);
      expect_reduced("max", dtype, named.replicas);
    }
  }
}

TEST_P(PeerCollectivesTest, ComplexNumbersHaveNoMinimum) {
  strategy.run([&] {
    for (const ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
      EXPECT_THROW(get_replica_context().all_reduce(op, filled({2}, 1, at::kComplexFloat)), c10::TypeError);
    }
  });
}

TEST_P(PeerCollectivesTest, MaximaOfBooleansAreTheirDisjunction) {
  strategy.run([&] {
    const bool is_last = own_id() == named.replicas - 1;
    const auto any = get_replica_context().all_reduce("max", filled({3}, is_last ? 1 : 0, at::kBool));
    const auto all = get_replica_context().all_reduce("min", filled({3}, is_last ? 1 : 0, at::kBool));
    EXPECT_EQ(any.scalar_type(), at::kBool);
    EXPECT_TRUE(torch::equal(any.cpu(), torch::ones({3}, torch::kBool).cpu()));
    EXPECT_TRUE(torch::equal(all.cpu(), torch::full({3}, named.replicas == 1, torch::kBool).cpu()));
  });
}

TEST_P(PeerCollectivesTest, ViewsAreReducedByTheirValues) {
  const auto numbers = torch::arange(12, torch::kDouble).reshape({3, 4});
  strategy.run([&] {
    const auto own = (numbers * (own_id() + 1)).to(named.device);
    const auto row = own[0].clone();
    const auto sums = get_replica_context().all_reduce(
        "sum", std::vector<torch::Tensor>{own.t(), own.slice(1, 0, 4, 2), row.expand({5, 4})});
    const auto wanted = numbers * sum_of_ids();
    EXPECT_TRUE(torch::equal(sums[0].cpu(), wanted.t().cpu()));
    EXPECT_TRUE(torch::equal(sums[1].cpu(), wanted.slice(1, 0, 4, 2).cpu()));
    EXPECT_TRUE(torch::equal(sums[2].cpu(), wanted[0].expand({5, 4}).cpu()));
  });
}

TEST_P(PeerCollectivesTest, ConjugateAndNegativeViewsAreReducedByTheirValues) {
  const auto numbers = torch::complex(torch::arange(3, torch::kDouble), torch::ones({3}, torch::kDouble));
  strategy.run([&] {
    const auto own = (numbers * (own_id() + 1)).to(device_for(at::kComplexDouble));
    const auto conjugate = own.conj();
    const auto negative = torch::imag(conjugate);
    const auto sums = get_replica_context().all_reduce("sum", std::vector<torch::Tensor>{negative});
    EXPECT_TRUE(torch::equal(sums[0].cpu(), torch::full({3}, -sum_of_ids(), torch::kDouble).cpu())) << sums[0];
    const auto sum = get_replica_context().all_reduce("sum", conjugate);
    EXPECT_TRUE(torch::equal(sum.cpu(), (numbers * sum_of_ids()).conj().resolve_conj().cpu())) << sum;
    const auto gathered = get_replica_context().all_gather(conjugate, 0);
    EXPECT_TRUE(torch::equal(gathered.narrow(0, 3 * own_id(), 3).cpu(), own.cpu().conj().resolve_conj())) << gathered;
  });
}

TEST_P(PeerCollectivesTest, XlaDevicesHaveNoComplexNumbers) {
  if (!named.is_traced()) GTEST_SKIP() << "replicas are not traced";
  strategy.run([&] {
    const auto complex = torch::ones({2}, torch::TensorOptions(torch::kComplexFloat).device(torch::kCPU));
    EXPECT_THAT(error_of([&] { complex.to(named.device); }), ::testing::HasSubstr("ComplexFloat"));
  });
}

TEST_P(PeerCollectivesTest, SumsOfSparseTensors) {
  strategy.run([&] {
    const auto on_cpu = torch::TensorOptions(torch::kDouble).device(torch::kCPU);
    const auto rows = torch::full({1, 3}, own_id() + 1, on_cpu);
    const auto indices = torch::full({1, 1}, own_id() % 2, on_cpu.dtype(torch::kLong));
    const auto own = torch::sparse_coo_tensor(indices, rows, {2, 3}, on_cpu);
    if (named.is_traced()) {
      EXPECT_THAT(error_of([&] { own.to(named.device).sum().item<double>(); }), ::testing::HasSubstr("SparseXLA"));
    }
    const auto sum = get_replica_context().all_reduce("sum", named.is_traced() ? own : own.to(named.device));
    auto wanted = torch::zeros({2, 3}, on_cpu);
    for (int i = 0; i < named.replicas; ++i) wanted[i % 2] += i + 1;
    EXPECT_TRUE(torch::equal(sum.to_dense().cpu(), wanted)) << sum;
  });
}

TEST_P(PeerCollectivesTest, GathersEveryDtypeAndShape) {
  std::vector<at::ScalarType> dtypes{at::kBool};
  for (const auto& more : {integers(), floats(), complexes()}) dtypes.insert(dtypes.end(), more.begin(), more.end());
  strategy.run([&] {
    for (const auto dtype : dtypes) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, {2, 3}, {1, 2, 2}, {0, 4}, {2, 0}}) {
        const auto gathered = get_replica_context().all_gather(filled(shape, own_id() % 2, dtype), 0);
        std::vector<torch::Tensor> all;
        for (int i = 0; i < named.replicas; ++i) all.push_back(filled(shape, i % 2, dtype).cpu());
        EXPECT_TRUE(torch::equal(gathered.cpu(), torch::cat(all).cpu())) << dtype << " gave " << gathered;
      }
    }
  });
}

TEST_P(PeerCollectivesTest, GathersRowsOfAnyNumber) {
  const auto rows = [](int id) { return std::vector<int64_t>{17, 0, 5, 12, 1, 23, 2, 0}[id % 8]; };
  if (named.is_traced() && named.replicas > 1) {
    const auto error = error_of([&] {
      strategy.run([&] { get_replica_context().all_gather(filled({rows(own_id()), 3}, 1, at::kFloat), 0); });
    });
    EXPECT_THAT(error, ::testing::HasSubstr("tensors of the same number, dtype and shape"));
    return;
  }
  strategy.run([&] {
    for (const auto dtype : {at::kHalf, at::kLong, at::kBool, at::kDouble}) {
      const auto gathered = get_replica_context().all_gather(filled({rows(own_id()), 3}, own_id() % 2, dtype), 0);
      std::vector<torch::Tensor> all;
      for (int i = 0; i < named.replicas; ++i) all.push_back(filled({rows(i), 3}, i % 2, dtype).cpu());
      EXPECT_TRUE(torch::equal(gathered.cpu(), torch::cat(all).cpu())) << dtype;
    }
  });
}

TEST_P(PeerCollectivesTest, GradientsOfMeansAndGathers) {
  strategy.run([&] {
    auto own = filled({3}, own_id() + 1, at::kDouble).requires_grad_(true);
    // Each replica uses the mean as often as its number says.
    (get_replica_context().all_reduce("mean", own) * (own_id() + 1)).sum().backward();
    EXPECT_TRUE(
        torch::allclose(own.grad().cpu(), torch::full({3}, sum_of_ids() / named.replicas, torch::kDouble).cpu()));

    auto part = filled({2, 2}, own_id() + 1, at::kDouble).requires_grad_(true);
    const auto weights = torch::arange(2.0 * named.replicas, torch::kDouble).reshape({-1, 1}).to(named.device);
    (get_replica_context().all_gather(part, 0) * weights).sum().backward();
    const auto wanted = weights.narrow(0, 2 * own_id(), 2).expand({2, 2}) * named.replicas;
    EXPECT_TRUE(torch::allclose(part.grad().cpu(), wanted.cpu())) << part.grad();
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, PeerCollectivesTest, ::testing::ValuesIn(all_strategies({{1, 1}, {2, 1}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
