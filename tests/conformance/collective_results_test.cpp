// What replicas do with the results of collectives, and collectives that do not match, under every strategy.

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

class CollectiveResultsTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  static ReplicaContext context() { return get_replica_context(); }
  static int own_id() { return context().replica_id_in_sync_group(); }

  /// 1 + 2 + ... + n for n replicas.
  double sum_of_ids() const { return named.replicas * (named.replicas + 1) / 2.0; }

  torch::Tensor filled(double value, at::ScalarType dtype = at::kDouble) const {
    return torch::full({2}, value, torch::kDouble).to(dtype).to(named.device);
  }

  /// For each replica a tensor: the k-th has the value (id + 1) * 10^k.
  Tensors powers() const {
    Tensors own;
    for (int k = 0; k < named.replicas; ++k) own.push_back(filled((own_id() + 1) * std::pow(10, k)));
    return own;
  }

  /// Calls `function` on all replicas and compares the result of each with `wanted(id)`.
  template <class F, class Wanted>
  void expect_results(const F& function, const Wanted& wanted) const {
    const auto results = strategy.local_results(strategy.run(function));
    for (int i = 0; i < named.local; ++i) {
      const torch::Tensor expected = wanted(named.first + i);
      EXPECT_TRUE(torch::equal(results[i].cpu(), expected)) << "replica " << i << " has " << results[i];
    }
  }

  template <class F>
  std::string error_of(const F& function) const {
    try {
      strategy.run(function);
    } catch (const CollectiveError& error) {
      return error.what();
    }
    return "no error";
  }

  static torch::Tensor two(double value) {
    return torch::full({2}, value, torch::dtype(torch::kDouble).device(torch::kCPU));
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(CollectiveResultsTest, EachReplicaMayUseAnotherSum) {
  expect_results([&] { return context().all_reduce("sum", powers())[own_id()]; },
                 [&](int id) { return two(sum_of_ids() * std::pow(10, id)); });
}

TEST_P(CollectiveResultsTest, EachReplicaMayUseAnotherMaximum) {
  expect_results([&] { return context().all_reduce("max", powers())[own_id()]; },
                 [&](int id) { return two(named.replicas * std::pow(10, id)); });
}

TEST_P(CollectiveResultsTest, EachReplicaMayUseAnotherGather) {
  expect_results([&] { return context().all_gather(powers(), 0)[own_id()]; },
                 [&](int id) {
                   Tensors parts;
                   for (int i = 0; i < named.replicas; ++i) parts.push_back(two((i + 1) * std::pow(10, id)));
                   return torch::cat(parts);
                 });
}

TEST_P(CollectiveResultsTest, ResultsMayBeUsedInAnotherOrder) {
  const auto use = [&] {
    const Tensors sums = context().all_reduce("sum", powers());
    const Tensors largest = context().all_reduce("max", powers());
    return torch::cat({sums[own_id()], largest[own_id()], sums[(own_id() + 1) % named.replicas]});
  };
  expect_results(use, [&](int id) {
    const int next = (id + 1) % named.replicas;
    return torch::cat({two(sum_of_ids() * std::pow(10, id)), two(named.replicas * std::pow(10, id)),
                       two(sum_of_ids() * std::pow(10, next))});
  });
}

TEST_P(CollectiveResultsTest, CollectivesOfDifferentResults) {
  const auto use = [&] {
    const Tensors sums = context().all_reduce("sum", powers());
    const Tensors again = context().all_reduce("sum", Tensors{sums[own_id()], sums[0], powers()[0]});
    return again[own_id() == 0 ? 0 : 2].clone();
  };
  double all = 0;
  for (int k = 0; k < named.replicas; ++k) all += sum_of_ids() * std::pow(10, k);
  expect_results(use, [&](int id) { return two(id == 0 ? all : sum_of_ids()); });
}

TEST_P(CollectiveResultsTest, SomeReplicasMayUseNone) {
  const auto use = [&] {
    const Tensors own = powers();
    const Tensors sums = context().all_reduce("sum", own);
    return (own_id() == 0 ? sums : own)[0].clone();
  };
  expect_results(use, [&](int id) { return two(id == 0 ? sum_of_ids() : id + 1); });
}

TEST_P(CollectiveResultsTest, ValuesAreReadAfterAnUnusedCollective) {
  const auto use = [&] {
    torch::Tensor own = filled(own_id() + 1);
    context().all_reduce("sum", own);
    own.add_(1);
    const double read = own[0].item<double>();
    return context().all_reduce("sum", own * read);
  };
  double wanted = 0;
  for (int i = 0; i < named.replicas; ++i) wanted += (i + 2) * (i + 2);
  expect_results(use, [&](int) { return two(wanted); });
}

TEST_P(CollectiveResultsTest, RunsInMergeFunctionsAreApart) {
  const auto use = [&] { return context().all_reduce("sum", powers())[own_id()]; };
  for (int i = 0; i < 10; ++i) {
    strategy.run([&] {
      const torch::Tensor before = use();
      const auto doubled = context().merge_call([&](const Strategy& all) {
        const auto inside = all.local_results(all.run(use));
        EXPECT_TRUE(torch::equal(inside[0].cpu(), two(sum_of_ids() * std::pow(10, named.first))));
        return inside[0] * 2;
      });
      EXPECT_TRUE(torch::equal(doubled.cpu(), two(2 * sum_of_ids() * std::pow(10, named.first))));
      EXPECT_TRUE(torch::equal((before + use()).cpu(), two(2 * sum_of_ids() * std::pow(10, own_id()))));
    });
  }
}

TEST_P(CollectiveResultsTest, GradientsOfDifferentResults) {
  const auto use = [&] {
    Tensors own = powers();
    for (torch::Tensor& tensor : own) tensor.requires_grad_();
    const Tensors sums = context().all_reduce("sum", own);
    (sums[own_id()] * (own_id() + 1)).sum().backward();
    Tensors gradients;
    for (const torch::Tensor& tensor : own) gradients.push_back(tensor.grad());
    return torch::cat(gradients);
  };
  expect_results(use, [&](int) {
    Tensors wanted;
    for (int k = 0; k < named.replicas; ++k) wanted.push_back(two(k + 1));
    return torch::cat(wanted);
  });
}

TEST_P(CollectiveResultsTest, MinimaAndMaximaPassNanOn) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int with_nan : {0, named.replicas - 1}) {
      strategy.run([&] {
        const double first = own_id() == with_nan ? kNan : own_id();
        const auto own = torch::tensor({first, -double(own_id())}, torch::kDouble).to(dtype).to(named.device);
        const auto smallest = context().all_reduce("min", own).cpu().to(torch::kDouble);
        const auto largest = context().all_reduce("max", own).cpu().to(torch::kDouble);
        EXPECT_TRUE(std::isnan(smallest[0].item<double>())) << smallest;
        EXPECT_TRUE(std::isnan(largest[0].item<double>())) << largest;
        EXPECT_EQ(smallest[1].item<double>(), 1 - named.replicas);
        EXPECT_EQ(largest[1].item<double>(), 0);
      });
    }
  }
}

TEST_P(CollectiveResultsTest, ResultsAreNewTensors) {
  strategy.run([&] {
    torch::Tensor own = filled(own_id() + 1);
    torch::Tensor sum = context().all_reduce("sum", own);
    torch::Tensor gathered = context().all_gather(own, 0);
    IndexedSlices slices;
    slices.indices = torch::zeros({1}, torch::kLong).to(named.device);
    slices.values = own.clone().unsqueeze(0);
    slices.dense_shape = {3, 2};
    IndexedSlices rows = context().all_reduce("sum", slices);
    sum.zero_();
    gathered.zero_();
    rows.values.zero_();
    rows.indices.add_(1);
    EXPECT_TRUE(torch::equal(own.cpu(), two(own_id() + 1))) << own;
    EXPECT_TRUE(torch::equal(slices.values.cpu(), two(own_id() + 1).unsqueeze(0))) << slices.values;
    EXPECT_EQ(slices.indices.cpu().item<int64_t>(), 0);
    torch::Tensor again = context().all_reduce("sum", own);
    own.fill_(-7);
    EXPECT_TRUE(torch::equal(again.cpu(), two(sum_of_ids()))) << again;
  });
}

TEST_P(CollectiveResultsTest, MeansOfIntegersAreFloatingPoint) {
  strategy.run([&] {
    const double mean = sum_of_ids() / named.replicas;
    const auto narrow = context().all_reduce("mean", filled(own_id() + 1, at::kByte));
    const auto wide = context().all_reduce("mean", filled(own_id() + 1, at::kLong));
    EXPECT_EQ(narrow.scalar_type(), at::kFloat);
    EXPECT_EQ(wide.scalar_type(), at::kDouble);
    EXPECT_EQ(narrow[0].item<double>(), mean);
    EXPECT_EQ(wide[0].item<double>(), mean);
    EXPECT_THROW(context().all_reduce("mean", 3), c10::TypeError);
  });
}

TEST_P(CollectiveResultsTest, ModesEndWithTheRun) {
  ASSERT_TRUE(torch::GradMode::is_enabled());
  strategy.run([&] { torch::GradMode::set_enabled(false); });
  EXPECT_TRUE(torch::GradMode::is_enabled());
  strategy.run([&] { EXPECT_TRUE(torch::GradMode::is_enabled()); });
  const torch::NoGradGuard no_grad;
  strategy.run([&] {
    EXPECT_FALSE(torch::GradMode::is_enabled());
    torch::GradMode::set_enabled(true);
  });
  EXPECT_FALSE(torch::GradMode::is_enabled());
}

/// Collectives that do not match, whose results nobody uses.
class CollectiveMismatchTest : public CollectiveResultsTest {
 protected:
  void SetUp() override {
    if (named.replicas == 1) GTEST_SKIP() << "one replica";
    if (named.has_workers()) GTEST_SKIP() << "several processes: an error ends the job";
  }

  void expect_works_on() const {
    expect_results([&] { return context().all_reduce("sum", filled(own_id() + 1)); },
                   [&](int) { return two(sum_of_ids()); });
  }
};

TEST_P(CollectiveMismatchTest, SumAgainstMean) {
  EXPECT_THAT(error_of([&] { context().all_reduce(own_id() == 0 ? "sum" : "mean", filled(1)); }),
              AllOf(HasSubstr("SUM"), HasSubstr("MEAN")));
  expect_works_on();
}

TEST_P(CollectiveMismatchTest, DimensionsOfGathers) {
  EXPECT_THAT(error_of([&] {
                context().all_gather(filled(1).expand({2, 2}), own_id() == 0 ? 0 : 1);
              }),
              AllOf(HasSubstr("all_gather"), HasSubstr("dim 0"), HasSubstr("dim 1")));
  expect_works_on();
}

TEST_P(CollectiveMismatchTest, Shapes) {
  EXPECT_NE(error_of([&] { context().all_reduce("sum", torch::ones({own_id() == 0 ? 2 : 3}).to(named.device)); }),
            "no error");
  expect_works_on();
}

TEST_P(CollectiveMismatchTest, NumbersOfTensors) {
  EXPECT_NE(error_of([&] { context().all_reduce("sum", Tensors(own_id() == 0 ? 1 : 2, filled(1))); }), "no error");
  expect_works_on();
}

TEST_P(CollectiveMismatchTest, ACallThatOneReplicaDoesNotMake) {
  EXPECT_NE(error_of([&] {
              if (own_id() != 0) context().all_reduce("sum", filled(1));
            }),
            "no error");
  expect_works_on();
}

TEST_P(CollectiveMismatchTest, CallsThatAreTooLate) {
  using namespace std::chrono_literals;
  for (const bool is_read : {false, true}) {
    EXPECT_NE(error_of([&] {
                if (own_id() == 0) std::this_thread::sleep_for(400ms);
                const auto sum = context().all_reduce("sum", filled(1), {.timeout_seconds = 0.1});
                if (is_read) sum.cpu();
              }),
              "no error");
    expect_works_on();
  }
}

constexpr TpuSize kResultSizes[] = {{1, 1}, {2, 1}, {4, 1}};
INSTANTIATE_TEST_SUITE_P(Strategies, CollectiveResultsTest, ::testing::ValuesIn(all_strategies(kResultSizes)),
                         strategy_name);
INSTANTIATE_TEST_SUITE_P(Strategies, CollectiveMismatchTest, ::testing::ValuesIn(all_strategies(TpuSize{2, 1})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
