#include "lockstep/strategy/optimizer/update/divided_update.h"

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/strategy/optimizer/update/optimizer_state.h"
#include "tests/support/ranks_as_threads.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;
using lockstep::tests::run_groups;

constexpr int64_t kSmallBucket = 4096;
/// Odd sizes, fewer elements than replicas, and parameters of several buckets.
const std::vector<std::vector<int64_t>> kShapes{{300, 7}, {5}, {70001}, {1}, {0, 3}, {17, 2, 3}};
constexpr size_t kUnused = 3;
const std::vector<size_t> kGroups{0, 0, 1, 0, 1, 1};

std::vector<at::Tensor> random_values(at::ScalarType dtype, double seed) {
  std::vector<at::Tensor> values;
  for (const auto& shape : kShapes) {
    const auto ramp = at::arange(c10::multiply_integers(shape), at::kDouble) * 0.37 + seed;
    values.push_back((at::sin(ramp) + 0.1 * at::cos(ramp * 5)).reshape(shape).to(dtype));
  }
  return values;
}

OptimizerPrototype::Factory factory_of(const std::string& kind) {
  const auto with = []<class O, class Options>(std::type_identity<O>, const Options& options) {
    return OptimizerPrototype::Factory(
        [options](OptimizerPrototype::Groups groups) { return std::make_unique<O>(std::move(groups), options); });
  };
  if (kind == "sgd")
    return with(std::type_identity<optim::SGD>(), optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  if (kind == "adam") return with(std::type_identity<optim::Adam>(), optim::AdamOptions(0.01).amsgrad(true));
  if (kind == "adamw") return with(std::type_identity<optim::AdamW>(), optim::AdamWOptions(0.01));
  if (kind == "rmsprop") {
    return with(std::type_identity<optim::RMSprop>(), optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  }
  return with(std::type_identity<optim::Adagrad>(), optim::AdagradOptions(0.1).initial_accumulator_value(0.25));
}

/// One replica: its parameters, some of which are not contiguous.
struct DividedReplica {
  DividedReplica(const std::string& kind, at::ScalarType dtype, const comm::Group& group, bool scatters,
                 int64_t bytes_per_bucket = kSmallBucket)
      : group_(group) {
    here.parameters = random_values(dtype, 0);
    here.parameters[0] = here.parameters[0].t().contiguous().t();
    for (at::Tensor& parameter : here.parameters) parameter.set_requires_grad(true);
    here.stored = here.parameters;
    OptimizerPrototype::Groups groups;
    for (size_t g = 0; g < 2; ++g) {
      std::vector<at::Tensor> of_group;
      for (size_t p = 0; p < kGroups.size(); ++p) {
        if (kGroups[p] == g) of_group.push_back(here.parameters[p]);
      }
      groups.emplace_back(of_group);
    }
    const auto make = factory_of(kind);
    prototype = std::make_unique<OptimizerPrototype>(make, make, groups);
    std::vector<char> divided;
    for (const at::Tensor& parameter : here.stored) divided.push_back(parameter.numel() > 0 ? 1 : 0);
    update = std::make_unique<DividedUpdate>(DividedUpdateSetup{.group = [this] { return group_; },
                                                                .rank = group.rank(),
                                                                .num_ranks = group.size(),
                                                                .parameters = here,
                                                                .groups = kGroups,
                                                                .divided = std::move(divided),
                                                                .prototype = *prototype,
                                                                .scatters = scatters,
                                                                .bytes_per_bucket = bytes_per_bucket});
    reduced = std::make_unique<ReducedGradients>(here.parameters, SumShare{});
  }

  /// The gradients of this rank, or, where `are_sums`, those of all.
  void set_gradients(int step, bool are_sums) {
    const auto own = random_values(here.parameters[0].scalar_type(), 10.0 * step + group_.rank());
    for (size_t p = 0; p < own.size(); ++p) {
      at::Tensor& gradient = here.parameters[p].mutable_grad();
      gradient.reset();
      if (p == kUnused) continue;
      gradient = are_sums ? group_.all_reduce(own[p]) : own[p];
    }
  }

  void step(int number, bool are_sums) {
    set_gradients(number, are_sums);
    AgreedGradients agreed{std::vector<char>(kShapes.size(), kDense),
                           std::vector<char>(kShapes.size(), are_sums ? 1 : 0)};
    agreed.present[kUnused] = kAbsent;
    update->step(agreed, *reduced);
  }

  int64_t state_bytes() const {
    int64_t bytes = 0;
    for (size_t p = 0; p < kShapes.size(); ++p) {
      for (const auto& chunk : update->chunks_of(p)) {
        if (chunk.optimizer == nullptr) continue;
        for (const auto& [name, tensor] : read_parameter_state(*chunk.optimizer, chunk.parameter).tensors) {
          bytes += static_cast<int64_t>(tensor.nbytes());
        }
      }
    }
    return bytes;
  }

  ReplicaParameters here;
  std::unique_ptr<OptimizerPrototype> prototype;
  std::unique_ptr<DividedUpdate> update;
  std::unique_ptr<ReducedGradients> reduced;

 private:
  comm::Group group_;
};

/// LibTorch's optimizer on whole parameters, of which `replica` has a copy.
std::unique_ptr<optim::Optimizer> whole_optimizer(const DividedReplica& replica, std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<at::Tensor>> of_groups(2);
  for (size_t p = 0; p < kGroups.size(); ++p) {
    parameters.push_back(replica.here.parameters[p].detach().clone().set_requires_grad(true));
    of_groups[kGroups[p]].push_back(parameters[p]);
  }
  return replica.prototype->make_for(of_groups);
}

int64_t num_elements() {
  int64_t count = 0;
  for (const auto& shape : kShapes) count += c10::multiply_integers(shape);
  return count;
}

TEST(Division, EveryElementHasOneOwner) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int64_t bytes : {int64_t{1}, kSmallBucket, int64_t{1} << 30}) {
      std::vector<at::Tensor> parameters = random_values(at::kFloat, 0);
      parameters[1] = parameters[1].to(at::kDouble);
      std::vector<char> divided(parameters.size(), 1);
      divided[5] = 0;
      std::vector<at::Tensor> owners;
      for (const at::Tensor& parameter : parameters) owners.push_back(at::zeros({parameter.numel()}));
      for (const DividedBucket& bucket : divide(parameters, divided, ranks, bytes)) {
        EXPECT_GT(bucket.num_elements(), 0);
        EXPECT_LE(bucket.num_elements(), ranks * bucket.part);
        const int64_t width = static_cast<int64_t>(c10::elementSize(bucket.dtype));
        EXPECT_LE(ranks * bucket.part * width, std::max(bytes, ranks * 16 * width));
        for (int rank = 0; rank < ranks; ++rank) {
          int64_t next = 0;
          for (const auto& [where, offset] : bucket.owned_by(rank)) {
            EXPECT_EQ(offset, next);
            next += where.size();
            EXPECT_EQ(parameters[where.parameter].scalar_type(), bucket.dtype);
            owners[where.parameter].narrow(0, where.begin, where.size()) += 1;
          }
          EXPECT_LE(next, bucket.part);
        }
      }
      for (size_t p = 0; p < parameters.size(); ++p) {
        EXPECT_TRUE(at::equal(owners[p], at::full({parameters[p].numel()}, divided[p] != 0 ? 1.0 : 0.0)));
      }
    }
  }
}

/// LibTorch's vectorised loops round some elements differently than the rest: those at the end of a tensor, of a slice
/// and of a thread's part.
bool is_same(const at::Tensor& found, const at::Tensor& wanted) {
  const double tolerance = wanted.scalar_type() == at::kBFloat16 ? 3e-2
                           : wanted.scalar_type() == at::kFloat  ? 1e-5
                                                                 : 1e-12;
  return at::allclose(found, wanted, tolerance, tolerance);
}

class DividedUpdateTest : public ::testing::TestWithParam<std::string> {};

/// Ten steps, with a change of the learning rate, on each number of replicas.
TEST_P(DividedUpdateTest, HasTheValuesOfTheWholeUpdate) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const bool scatters : {false, true}) {
        SCOPED_TRACE(c10::str(ranks, " ranks, ", dtype, scatters ? ", gradients" : ", state"));
        run_groups(ranks, [&](const comm::Group& group) {
          DividedReplica replica(GetParam(), dtype, group, scatters);
          std::vector<at::Tensor> whole;
          const auto optimizer = whole_optimizer(replica, whole);
          for (int step = 0; step < 10; ++step) {
            if (step == 5) {
              replica.prototype->front().param_groups()[1].options().set_lr(0.02);
              optimizer->param_groups()[1].options().set_lr(0.02);
            }
            replica.set_gradients(step, /*are_sums=*/true);
            for (size_t p = 0; p < whole.size(); ++p) {
              const at::Tensor& sum = replica.here.parameters[p].grad();
              whole[p].mutable_grad() = sum.defined() ? sum.clone() : sum;
            }
            optimizer->step();
            replica.step(step, /*are_sums=*/!scatters || step == 7);
            for (size_t p = 0; p < whole.size(); ++p) {
              ASSERT_TRUE(is_same(replica.here.parameters[p], whole[p])) << "step " << step << ", parameter " << p;
              EXPECT_EQ(replica.here.parameters[p].strides(), whole[p].strides());
              if (kShapes[p][0] > 0) {
                EXPECT_EQ(replica.here.parameters[p].grad().defined(), !scatters && p != kUnused);
              }
            }
          }
        });
      }
    }
  }
}

TEST_P(DividedUpdateTest, EachReplicaHasItsPartOfTheState) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool scatters : {false, true}) {
      std::vector<int64_t> state(static_cast<size_t>(ranks));
      std::vector<int64_t> gradients(static_cast<size_t>(ranks));
      run_groups(ranks, [&](const comm::Group& group) {
        DividedReplica replica(GetParam(), at::kFloat, group, scatters);
        replica.step(0, /*are_sums=*/!scatters);
        state[static_cast<size_t>(group.rank())] = replica.state_bytes();
        gradients[static_cast<size_t>(group.rank())] = replica.update->gradient_bytes();
      });
      const int64_t elements = num_elements() - 1;  // without the unused one
      const int fields = GetParam() == "sgd" || GetParam() == "adagrad" ? 1 : GetParam() == "adamw" ? 2 : 3;
      EXPECT_EQ(std::accumulate(state.begin(), state.end(), int64_t{0}), elements * fields * 4);
      EXPECT_EQ(std::accumulate(gradients.begin(), gradients.end(), int64_t{0}), elements * 4);
      for (size_t r = 0; r < state.size(); ++r) {
        EXPECT_NEAR(static_cast<double>(state[r]), static_cast<double>(elements * fields * 4 / ranks), 2000) << r;
        EXPECT_NEAR(static_cast<double>(gradients[r]), static_cast<double>(elements * 4 / ranks), 1000) << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, DividedUpdateTest, ::testing::Values("sgd", "adam", "adamw", "rmsprop", "adagrad"),
                         [](const auto& info) { return info.param; });

TEST(DividedUpdate, StateThatWasDroppedIsMadeAnew) {
  run_groups(2, [&](const comm::Group& group) {
    DividedReplica stepped("adagrad", at::kFloat, group, /*scatters=*/true);
    DividedReplica fresh("adagrad", at::kFloat, group, /*scatters=*/true);
    stepped.step(0, false);
    stepped.update->drop_state();
    EXPECT_EQ(stepped.state_bytes(), 0);
    for (size_t p = 0; p < kShapes.size(); ++p) stepped.here.stored[p].detach().copy_(fresh.here.stored[p].detach());
    stepped.step(1, false);
    fresh.step(1, false);
    for (size_t p = 0; p < kShapes.size(); ++p) {
      EXPECT_TRUE(at::equal(stepped.here.parameters[p], fresh.here.parameters[p]));
    }
  });
}

TEST(DividedUpdate, SparseGradientsAreRefused) {
  run_groups(2, [&](const comm::Group& group) {
    DividedReplica replica("sgd", at::kFloat, group, /*scatters=*/false);
    replica.here.names = {"table", "b", "c", "d", "e", "f"};
    AgreedGradients agreed{std::vector<char>(kShapes.size(), kAbsent), std::vector<char>(kShapes.size(), 1)};
    agreed.present[0] = kSparse;
    try {
      replica.update->step(agreed, *replica.reduced);
      ADD_FAILURE() << "no error";
    } catch (const c10::NotImplementedError& error) {
      EXPECT_THAT(error.what_without_backtrace(), ::testing::HasSubstr("parameter=table"));
    }
  });
}

}  // namespace
}  // namespace lockstep::detail
