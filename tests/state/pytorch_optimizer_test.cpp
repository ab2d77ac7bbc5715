#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/weights.h"
#include "tests/state/fixture_values.h"
#include "tests/support/message_of.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

State translated(const std::string& name) {
  return from_pytorch_optimizer(load_file(fixture("pytorch/optimizer_" + name + ".pt")), {"weight", "bias"});
}

std::vector<std::string> names_in(const State& state) {
  std::vector<std::string> names;
  for (const auto& [name, value] : state) names.push_back(name);
  return names;
}

TEST(PyTorchOptimizer, AdamHasNamesOfParameters) {
  const State adam = translated("adam");
  const auto expected = expected_values("pytorch")["optimizer_adam.pt"];
  EXPECT_EQ(adam.integer("weight.step"), 3);
  EXPECT_EQ(adam.number("group.0.lr"), 0.01);
  EXPECT_EQ(adam.number("group.0.betas.1"), 0.999);
  EXPECT_TRUE(adam.flag("group.0.amsgrad"));
  expect_tensor(adam.tensor("weight.exp_avg").read(), expected["state.0.exp_avg"]);
  expect_tensor(adam.tensor("bias.exp_avg_sq").read(), expected["state.1.exp_avg_sq"]);
  expect_tensor(adam.tensor("bias.max_exp_avg_sq").read(), expected["state.1.max_exp_avg_sq"]);
  EXPECT_EQ(adam.size(), 14U);
}

TEST(PyTorchOptimizer, GroupsKeepTheirOptions) {
  const State adamw = translated("adamw");
  EXPECT_EQ(adamw.number("group.0.lr"), 0.001);
  EXPECT_EQ(adamw.number("group.1.lr"), 0.1);
  EXPECT_TRUE(adamw.has("bias.exp_avg"));
}

TEST(PyTorchOptimizer, OthersHaveTheNamesOfLibTorch) {
  EXPECT_THAT(names_in(translated("sgd")),
              ::testing::ElementsAre("bias.momentum_buffer", "group.0.dampening", "group.0.lr", "group.0.momentum",
                                     "group.0.nesterov", "group.0.weight_decay", "weight.momentum_buffer"));
  EXPECT_THAT(names_in(translated("adagrad").below("weight")), ::testing::ElementsAre("step", "sum"));
  EXPECT_THAT(names_in(translated("rmsprop").below("weight")),
              ::testing::ElementsAre("grad_avg", "momentum_buffer", "square_avg", "step"));
}

TEST(PyTorchOptimizer, WhatLibTorchHasNotIsRefused) {
  EXPECT_THAT(message_of<c10::ValueError>([] { translated("maximize"); }), HasSubstr("param_groups.0.maximize"));
  EXPECT_THAT(message_of<c10::ValueError>([] { translated("adamax"); }), HasSubstr("state.0.exp_inf"));
  const State sgd = load_file(fixture("pytorch/optimizer_sgd.pt"));
  EXPECT_THAT(message_of<c10::ValueError>([&] { from_pytorch_optimizer(sgd, {"weight"}); }),
              HasSubstr("parameters=2, names=1"));
  EXPECT_THROW(from_pytorch_optimizer(sgd, {"weight", "weight"}), c10::ValueError);
  EXPECT_THAT(
      message_of<c10::ValueError>([] { from_pytorch_optimizer(load_file(fixture("pytorch/state_dict.pt")), {}); }),
      HasSubstr("no param_groups"));
}

}  // namespace
}  // namespace lockstep::tests
