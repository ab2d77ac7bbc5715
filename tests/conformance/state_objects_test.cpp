// State of variables, random numbers, datasets and schedulers, under every strategy.

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/state_training.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

class StateObjectsTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  StateObjectsTest() : named(GetParam()), strategy(named.make()) {}

  NamedStrategy named;
  Strategy strategy;
};

TEST_P(StateObjectsTest, VariablesKeepTheirValues) {
  auto scope = strategy.scope();
  const VariableOptions options{.aggregation = VariableAggregation::Mean};
  const Variable written(torch::arange(6.0).reshape({2, 3}), options);
  const State saved = on_host(written.state());
  const Variable other(torch::zeros({2, 3}), options);
  ASSERT_TRUE(other.load_state(saved).complete());
  for (const torch::Tensor& component : other.components()) {
    EXPECT_TRUE(torch::equal(component.detach().cpu(), torch::arange(6.0).reshape({2, 3})));
  }
  strategy.run([&] { other.assign_add(torch::ones({2, 3})); });
  State wrong;
  wrong.set("value", torch::zeros({3, 2}));
  EXPECT_THROW(other.load_state(wrong), c10::ValueError);
}

TEST_P(StateObjectsTest, SumsAndMeansStayTheSame) {
  for (const auto aggregation : {VariableAggregation::Sum, VariableAggregation::Mean}) {
    auto scope = strategy.scope();
    const VariableOptions options{.synchronization = VariableSynchronization::OnRead, .aggregation = aggregation};
    const Variable total(torch::zeros({2}), options);
    const auto add = [&](const Variable& to) {
      strategy.run([&] {
        const int id = get_replica_context().replica_id_in_sync_group();
        to.assign_add(torch::full({2}, 0.1 * (id + 1)));
      });
    };
    if (named.is_traced()) {
      total.assign(torch::full({2}, 0.3));
    } else {
      add(total);
    }
    const torch::Tensor expected = total.read_value().cpu();
    const State saved = on_host(total.state());
    const Variable same(torch::zeros({2}), options);
    ASSERT_TRUE(same.load_state(saved).complete());
    EXPECT_TRUE(torch::equal(same.read_value().cpu(), expected));
    for (size_t i = 0; i < same.components().size(); ++i) {
      EXPECT_TRUE(torch::equal(same.components()[i].cpu(), total.components()[i].cpu()));
    }
    // As of a plain tensor, or of another number of replicas.
    State of_value;
    of_value.set("value", saved.tensor("value").read());
    const Variable from_value(torch::zeros({2}), options);
    ASSERT_TRUE(from_value.load_state(of_value).complete());
    EXPECT_TRUE(torch::equal(from_value.read_value().cpu(), expected));
  }
}

TEST_P(StateObjectsTest, RandomNumbersGoOn) {
  if (named.is_traced()) return;  // one more program for what replicas have in common with all others
  const auto make = [&](uint64_t seed) {
    return make_training<SavedNet, torch::optim::SGD>(named, strategy, seed, torch::optim::SGDOptions(0.1), 0.5);
  };
  const RandomState random(strategy);
  const SavedTraining undisturbed = make(1);
  undisturbed.train(0, 2);
  const State saved = undisturbed.state();
  const State numbers = on_host(random.state());
  undisturbed.train(2, 2);

  const SavedTraining restarted = make(5);
  restarted.load(saved, {});
  ASSERT_TRUE(random.load_state(numbers).complete());
  restarted.train(2, 2);
  EXPECT_EQ(difference(undisturbed.state(), restarted.state()), "");
}

/// The first value of each row of a step, on all replicas.
std::vector<int64_t> ids_of(const NamedStrategy& named, const Strategy& strategy,
                            const PerReplica<torch::Tensor>& batch) {
  const torch::Tensor rows = all_rows(named, strategy, batch).reshape({-1});
  return {rows.data_ptr<int64_t>(), rows.data_ptr<int64_t>() + rows.numel()};
}

TEST_P(StateObjectsTest, DatasetsContinueInTheMiddle) {
  torch::manual_seed(3);
  const auto make = [&] {
    return strategy.distribute_dataset(data::from_tensor_slices(torch::arange(40)).shuffle(16).batch(8));
  };
  const auto read = [&](const auto& dataset, int64_t num_steps) {
    std::vector<std::vector<int64_t>> steps;
    for (auto& batch : dataset) {
      steps.push_back(ids_of(named, strategy, batch));
      if (static_cast<int64_t>(steps.size()) == num_steps) break;
    }
    return steps;
  };
  const auto undisturbed = make();
  std::vector<std::vector<std::vector<int64_t>>> expected;
  std::vector<State> inside;
  for (; undisturbed.epoch() < 3;) {
    expected.emplace_back();
    for (auto& batch : undisturbed) {
      expected.back().push_back(ids_of(named, strategy, batch));
      inside.push_back(undisturbed.state());
    }
  }
  const State between = undisturbed.state();
  const auto next = read(undisturbed, 100);
  ASSERT_EQ(expected[0].size(), 5U);

  // After the second step of the second epoch.
  const auto restored = make();
  restored.load_state(inside.at(5 + 1));
  EXPECT_EQ(restored.epoch(), 1);
  const State again = restored.state();
  EXPECT_EQ(again.text("position"), inside.at(6).text("position"));
  EXPECT_EQ(read(restored, 100), (std::vector(expected[1].begin() + 2, expected[1].end())));
  EXPECT_EQ(restored.epoch(), 2);
  EXPECT_EQ(read(restored, 100), expected[2]);
  EXPECT_EQ(read(restored, 100), next);

  // In the body of the last step: the loop has nothing more.
  restored.load_state(inside.at(9));
  EXPECT_EQ(restored.epoch(), 1);
  EXPECT_TRUE(read(restored, 100).empty());
  EXPECT_EQ(read(restored, 100), expected[2]);

  // Between two epochs.
  restored.load_state(between);
  EXPECT_EQ(restored.epoch(), 3);
  EXPECT_EQ(read(restored, 100), next);

  // An iterator that is there moves, too.
  auto iterator = restored.iterator();
  static_cast<void>(iterator.get_next());
  restored.load_state(inside.at(6));
  EXPECT_EQ(ids_of(named, strategy, iterator.get_next()), expected[1][2]);
  EXPECT_EQ(restored.epoch(), 2);

  const auto other = strategy.distribute_dataset(data::from_tensor_slices(torch::arange(40)).batch(8));
  EXPECT_THROW(other.load_state(inside.at(6)), c10::ValueError);
}

TEST_P(StateObjectsTest, SchedulersGoOn) {
  if (named.is_traced()) return;  // nothing of it is on a device
  auto scope = strategy.scope();
  const auto model = module<SavedNet>();
  const auto make = [&] { return optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(1.0)); };
  const auto rate_of = [](const auto& of) { return of->param_groups()[0].options().get_lr(); };

  const auto plain = make();
  torch::optim::StepLR reference(*plain, 3, 0.5);
  const auto first = make();
  const Scheduler<torch::optim::StepLR> schedule(first, 3U, 0.5);
  for (int i = 0; i < 4; ++i) {
    reference.step();
    schedule.step();
    EXPECT_EQ(rate_of(first), rate_of(plain));
  }
  const auto second = make();
  Scheduler<torch::optim::StepLR> restored(second, 3U, 0.5);
  second.load_state(first.state());
  restored.load_state(schedule.state());
  for (int i = 0; i < 7; ++i) {
    reference.step();
    restored.step();
    EXPECT_EQ(rate_of(second), rate_of(plain)) << i;
  }
}

/// The rates that PyTorch 2 sets for these values.
TEST(ReduceLROnPlateau, FollowsPyTorchAndGoesOn) {
  const auto model = module<SavedNet>();
  const PlateauOptions options{.factor = 0.5, .patience = 1, .cooldown = 1};
  const std::vector<double> values{1.0, 0.9, 0.95, 0.91, 0.9, 0.92, 0.93, 0.94, 0.8, 0.81, 0.82, 0.83};
  const std::vector<double> rates{1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125};
  for (size_t stop = 0; stop < values.size(); ++stop) {
    const auto first = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(1.0));
    const ReduceLROnPlateau before(first, options);
    for (size_t i = 0; i < stop; ++i) before.step(values[i]);
    const auto second = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(1.0));
    const ReduceLROnPlateau after(second, options);
    second.load_state(first.state());
    after.load_state(before.state());
    for (size_t i = stop; i < values.size(); ++i) {
      after.step(values[i]);
      EXPECT_EQ(second->param_groups()[0].options().get_lr(), rates[i]) << "stopped after " << stop << ", value " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, StateObjectsTest, ::testing::ValuesIn(all_strategies({{1, 2}, {2, 1}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
