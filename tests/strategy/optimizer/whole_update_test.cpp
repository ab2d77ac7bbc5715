#include "lockstep/strategy/optimizer/update/whole_update.h"

#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/strategy/optimizer/exchange/local_exchange.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

/// Parameters of one replica, of which the second is not replicated.
class WholeUpdateTest : public ::testing::Test {
 protected:
  template <class O, class Options>
  std::unique_ptr<WholeUpdate> make_update(const Options& options) {
    for (int p = 0; p < 3; ++p) here_.parameters.push_back(torch::ones({4}, torch::requires_grad()));
    here_.stored = here_.parameters;
    std::vector<std::vector<at::Tensor>> of_groups(groups_.back() + 1);
    for (size_t p = 0; p < groups_.size(); ++p) of_groups[groups_[p]].push_back(here_.parameters[p]);
    OptimizerPrototype::Groups groups;
    for (const auto& parameters : of_groups) groups.emplace_back(parameters);
    const auto make = [options](OptimizerPrototype::Groups given) {
      return std::make_unique<O>(std::move(given), options);
    };
    prototype_ = std::make_unique<OptimizerPrototype>(make, make, groups);
    exchange_ = std::make_unique<LocalExchange>(default_strategy(), 0, 1, here_);
    return make_whole_update({default_strategy(), 0, here_, groups_, methods_, *prototype_, *exchange_});
  }

  void set_gradients(double value) {
    for (const at::Tensor& parameter : here_.parameters) parameter.mutable_grad() = at::full({4}, value);
  }

  double value(size_t parameter) const { return here_.stored[parameter][0].item<double>(); }

  ReplicaParameters here_;
  std::vector<size_t> groups_{0, 1, 1};
  UpdateMethods methods_{{UpdateMethod::Replicated, UpdateMethod::Sharded, UpdateMethod::Replicated}};
  std::unique_ptr<OptimizerPrototype> prototype_;
  std::unique_ptr<LocalExchange> exchange_;
};

TEST_F(WholeUpdateTest, OnlyReplicatedParametersAreUpdated) {
  const auto update = make_update<optim::SGD>(optim::SGDOptions(0.5));
  EXPECT_FALSE(update->is_compiled());
  set_gradients(1);
  update->step();
  EXPECT_DOUBLE_EQ(value(0), 0.5);
  EXPECT_DOUBLE_EQ(value(1), 1);
  EXPECT_DOUBLE_EQ(value(2), 0.5);
}

TEST_F(WholeUpdateTest, OptionsOfEachGroupAreThoseThatHoldNow) {
  const auto update = make_update<optim::SGD>(optim::SGDOptions(0.5));
  set_gradients(1);
  prototype_->front().param_groups()[1].options().set_lr(0.25);
  update->step();
  EXPECT_DOUBLE_EQ(value(0), 0.5);
  EXPECT_DOUBLE_EQ(value(2), 0.75);
}

TEST_F(WholeUpdateTest, AParameterBecomesReplicated) {
  const auto update = make_update<optim::SGD>(optim::SGDOptions(0.5));
  set_gradients(1);
  update->step();
  methods_.follow({kDense, kSparse, kDense}, here_.stored, /*rows_known=*/false);
  update->step();
  EXPECT_DOUBLE_EQ(value(0), 0);
  EXPECT_DOUBLE_EQ(value(1), 0.5);
}

TEST_F(WholeUpdateTest, AClosureIsEvaluatedAsOftenAsTheOptimizerWants) {
  groups_ = {0, 0, 0};
  const auto update = make_update<optim::LBFGS>(optim::LBFGSOptions(0.5).max_iter(5));
  int evaluations = 0;
  const at::Tensor loss = update->step([&] {
    ++evaluations;
    const at::Tensor distance = (here_.parameters[0].square().sum() + here_.parameters[2].square().sum());
    for (const at::Tensor& parameter : here_.parameters) parameter.mutable_grad().reset();
    distance.backward();
    return distance.detach();
  });
  EXPECT_GT(evaluations, 1);
  EXPECT_DOUBLE_EQ(loss.item<double>(), 8);
  EXPECT_LT(value(0), 0.5);
}

}  // namespace
}  // namespace lockstep::detail
