#include "lockstep/strategy/optimizer/update/sharded_update.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

using Layout = std::vector<std::vector<UpdateChunk>>;
using MakeGroups = std::function<std::unique_ptr<optim::Optimizer>(std::vector<at::Tensor>)>;

const std::vector<std::vector<int64_t>> kShardedShapes{{300, 7}, {5}, {70000}, {1}};

std::vector<at::Tensor> random_values(at::ScalarType dtype) {
  std::vector<at::Tensor> values;
  for (const auto& shape : kShardedShapes) values.push_back(at::randn(shape).to(dtype));
  return values;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& value : values) copies.push_back(value.clone());
  return copies;
}

/// Replicas that update each other's parameters, one after the other.
class ShardedReplicas {
 public:
  ShardedReplicas(const std::vector<at::Tensor>& start, const Layout& layout, const MakeGroups& make)
      : front_(make(copies_of(start))), groups_(start.size(), 0), parameters_(layout.size()) {
    for (size_t r = 0; r < layout.size(); ++r) {
      parameters_[r] = copies_of(start);
      updates_.push_back(
          std::make_unique<ShardedUpdate>(layout[r], parameters_[r], groups_,
                                          [make](const at::Tensor& slice, size_t /*group*/) { return make({slice}); }));
    }
  }

  /// `gradients` are of each replica; undefined ones are absent.
  void step(const std::vector<std::vector<at::Tensor>>& gradients, bool reduced = false) {
    std::vector<ReplicaGradients> published(gradients.size());
    AllGradients all;
    for (size_t r = 0; r < gradients.size(); ++r) {
      for (size_t p = 0; p < groups_.size(); ++p) {
        published[r].add_parameter(parameters_[r][p], gradients[r][p], reduced);
      }
      all.push_back(&published[r]);
    }
    for (size_t r = 0; r < updates_.size(); ++r) {
      updates_[r]->apply(static_cast<int>(r), all, methods, segment, front_->param_groups());
    }
  }

  optim::Optimizer& front() { return *front_; }
  const std::vector<at::Tensor>& parameters(size_t replica) const { return parameters_[replica]; }

  UpdateMethods methods{std::vector<UpdateMethod>(kShardedShapes.size(), UpdateMethod::Sharded)};
  ParameterRange segment{0, kShardedShapes.size()};

 private:
  std::unique_ptr<optim::Optimizer> front_;
  std::vector<size_t> groups_;
  std::vector<std::vector<at::Tensor>> parameters_;
  std::vector<std::unique_ptr<ShardedUpdate>> updates_;
};

Layout planned(int num_owners, int64_t element_bytes = 4) {
  std::vector<int64_t> sizes;
  for (const auto& shape : kShardedShapes) sizes.push_back(c10::multiply_integers(shape));
  return plan_chunks(sizes, std::vector<int64_t>(sizes.size(), element_bytes), num_owners);
}

/// All by one owner, in chunks of `largest` elements, while `num_owners - 1` own nothing.
Layout by_the_last(int num_owners, int64_t largest) {
  Layout layout(num_owners);
  for (size_t p = 0; p < kShardedShapes.size(); ++p) {
    const int64_t size = c10::multiply_integers(kShardedShapes[p]);
    for (int64_t begin = 0; begin < size; begin += largest) {
      layout.back().push_back({p, begin, std::min(begin + largest, size)});
    }
  }
  return layout;
}

std::unique_ptr<optim::Optimizer> make_adam(std::vector<at::Tensor> parameters) {
  return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions(0.1).weight_decay(0.01));
}

std::unique_ptr<optim::Optimizer> make_momentum(std::vector<at::Tensor> parameters) {
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(0.1).momentum(0.9));
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  for (size_t p = 0; p < wanted.size(); ++p) EXPECT_TRUE(got[p].equal(wanted[p])) << "parameter " << p;
}

void expect_close(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  for (size_t p = 0; p < wanted.size(); ++p) {
    EXPECT_TRUE(at::allclose(got[p], wanted[p], 1e-5, 1e-6)) << "parameter " << p;
  }
}

/// Some steps on replicas and on a plain optimizer of LibTorch, which gets the sums.
void compare_with_libtorch(const Layout& layout, const MakeGroups& make, at::ScalarType dtype) {
  at::manual_seed(5);
  const std::vector<at::Tensor> start = random_values(dtype);
  ShardedReplicas replicas(start, layout, make);
  const std::vector<at::Tensor> plain = copies_of(start);
  const auto optimizer = make(plain);
  for (int step = 0; step < 4; ++step) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (size_t r = 0; r < layout.size(); ++r) gradients.push_back(random_values(dtype));
    gradients[0][1].reset();
    if (step == 1) {
      for (auto& of_replica : gradients) of_replica[2].reset();
    }
    for (size_t p = 0; p < plain.size(); ++p) {
      at::Tensor sum;
      for (const auto& of_replica : gradients) {
        if (of_replica[p].defined()) sum = sum.defined() ? sum + of_replica[p] : of_replica[p].clone();
      }
      plain[p].mutable_grad() = sum;
    }
    for (optim::Optimizer* each : {optimizer.get(), &replicas.front()}) {
      each->param_groups()[0].options().set_lr(0.1 / (1 + step));
    }
    optimizer->step();
    replicas.step(gradients);
    expect_close(replicas.parameters(0), plain);
    for (size_t r = 1; r < layout.size(); ++r) expect_equal(replicas.parameters(r), replicas.parameters(0));
  }
}

TEST(ShardedUpdate, IsWhatLibTorchDoes) {
  for (const MakeGroups& make : {MakeGroups(make_adam), MakeGroups(make_momentum)}) {
    for (const int owners : {1, 2, 3, 5}) {
      SCOPED_TRACE(c10::str("planned, owners=", owners));
      compare_with_libtorch(planned(owners), make, at::kFloat);
    }
    compare_with_libtorch(planned(2, 8), make, at::kDouble);
    SCOPED_TRACE("by the last");
    compare_with_libtorch(by_the_last(3, 32768), make, at::kFloat);
    compare_with_libtorch(by_the_last(2, 1000), make, at::kFloat);
    compare_with_libtorch(by_the_last(1, 333), make, at::kFloat);
  }
}

TEST(ShardedUpdate, SumsAreNotAddedAgain) {
  const std::vector<at::Tensor> start = random_values(at::kFloat);
  const std::vector<at::Tensor> sums = random_values(at::kFloat);
  ShardedReplicas replicas(start, planned(3), make_adam);
  replicas.step({sums, sums, sums}, /*reduced=*/true);
  const std::vector<at::Tensor> plain = copies_of(start);
  const auto optimizer = make_adam(plain);
  for (size_t p = 0; p < plain.size(); ++p) plain[p].mutable_grad() = sums[p];
  optimizer->step();
  expect_close(replicas.parameters(2), plain);
}

TEST(ShardedUpdate, OtherMethodsAndSegmentsAreLeftAlone) {
  const std::vector<at::Tensor> start = random_values(at::kFloat);
  const std::vector<at::Tensor> gradients = random_values(at::kFloat);
  ShardedReplicas replicas(start, planned(2), make_momentum);
  replicas.methods =
      UpdateMethods({UpdateMethod::Sharded, UpdateMethod::Replicated, UpdateMethod::Sharded, UpdateMethod::Sharded});
  replicas.segment = {0, 3};
  replicas.step({gradients, gradients});
  const std::vector<bool> changed{true, false, true, false};
  for (size_t p = 0; p < changed.size(); ++p) {
    EXPECT_EQ(!replicas.parameters(1)[p].equal(start[p]), changed[p]) << "parameter " << p;
  }
}

TEST(ShardedUpdate, FollowsParametersThatHaveMoved) {
  std::vector<at::Tensor> stored{at::ones({40})};
  const std::vector<size_t> groups{0};
  const auto front = make_momentum({at::ones({40})});
  ShardedUpdate update({{0, 0, 40}}, stored, groups,
                       [](const at::Tensor& slice, size_t /*group*/) { return make_momentum({slice}); });
  const UpdateMethods methods({UpdateMethod::Sharded});
  for (int step = 0; step < 2; ++step) {
    ReplicaGradients published;
    published.add_parameter(stored[0], at::ones({40}), /*reduced=*/false);
    update.apply(0, {&published}, methods, {0, 1}, front->param_groups());
    stored[0].set_data(stored[0].clone());
  }
  EXPECT_TRUE(at::allclose(stored[0], at::full({40}, 1 - 0.1 - 0.19)));
}

}  // namespace
}  // namespace lockstep::detail
