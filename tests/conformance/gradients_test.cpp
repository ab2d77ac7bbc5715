// What backward, or a program, leaves in the gradients, and what parameters are when they are updated, under every
// strategy: the result is that of one device, or an error that names the parameter.

#include <mutex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

constexpr double kGradientTolerance = 1e-9;

/// Two tables that are added: backward leaves two views of one tensor.
struct SumOfTablesImpl : torch::nn::Module {
  SumOfTablesImpl() {
    first = register_parameter("first", torch::randn({4, 3}, torch::kDouble));
    second = register_parameter("second", torch::randn({4, 3}, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.unsqueeze(1) * (first.unsqueeze(0) + second.unsqueeze(0)); }
  torch::Tensor first, second;
};
TORCH_MODULE(SumOfTables);

/// Passes its input through, and returns no gradient for the second one.
struct NoGradientForSecond : torch::autograd::Function<NoGradientForSecond> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& a, const torch::Tensor& b) {
    return a + b;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

class GradientsTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  GradientsTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({12, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {12}, torch::kLong);
    rows = torch::randn({12, 3}, torch::kDouble).unsqueeze(1).expand({12, 4, 3}).contiguous();
  }

  template <class Step>
  void run(const Step& step) const {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { step(a, b); }, split(named, x), split(named, y));
  }

  static torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
    return average_loss(torch::nll_loss(scores, labels, {}, torch::Reduction::None));
  }

  template <class Model>
  void expect_equal(const Model& model, const std::vector<torch::Tensor>& wanted) const {
    for (int i = 0; i < model.num_replicas(); ++i) {
      const auto got = model.replica(i).parameters();
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t p = 0; p < got.size(); ++p) {
        EXPECT_TRUE(torch::allclose(got[p].cpu(), wanted[p], kGradientTolerance, kGradientTolerance))
            << "parameter " << p << " of replica " << i << " differs by " << (got[p].cpu() - wanted[p]).abs().max();
      }
    }
  }

  /// Calls `step(replica's rows)` and returns the message of the error that all replicas throw.
  template <class Step>
  std::string error_of(const Step& step) const {
    try {
      run(step);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y, rows;
};

TEST_P(GradientsTest, MinimizeStartsFromNothingAndLeavesOtherParametersAlone) {
  torch::manual_seed(3);
  Mlp first_plain, second_plain;
  torch::optim::SGD first_reference(first_plain->parameters(), 0.1), second_reference(second_plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto first = module<Mlp>();
  auto second = module<Mlp>();
  auto first_sgd = optimizer<torch::optim::SGD>(first, 0.1);
  auto second_sgd = optimizer<torch::optim::SGD>(second, 0.1);
  for (int step = 0; step < 3; ++step) {
    first_reference.zero_grad();
    torch::nll_loss(first_plain->forward(x) + second_plain->forward(x), y).backward();
    first_reference.step();
    second_reference.zero_grad();
    torch::nll_loss(first_plain->forward(x) * second_plain->forward(x), y).backward();
    second_reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      first_sgd.minimize(loss_of(first->forward(a) + second->forward(a), b));
      for (const torch::Tensor& parameter : second->parameters()) EXPECT_FALSE(parameter.grad().defined());
      second_sgd.minimize(loss_of(first->forward(a) * second->forward(a), b));
    });
  }
  expect_equal(first, first_plain->parameters());
  expect_equal(second, second_plain->parameters());
}

TEST_P(GradientsTest, FrozenParametersGetNothing) {
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const torch::Tensor before = model->first->weight.detach().cpu().clone();
  for (torch::Tensor& parameter : model->parameters()) parameter.requires_grad_(false);
  run([&](const torch::Tensor& a, const torch::Tensor& b) {
    sgd.minimize(loss_of(model->forward(a.requires_grad_()), b));
    EXPECT_FALSE(a.grad().defined());
  });
  EXPECT_TRUE(model->first->weight.cpu().equal(before));
}

TEST_P(GradientsTest, GradientsInOneMemoryAreSummedOnce) {
  for (const std::string way : {"minimize", "step", "reduce", "clip_grad_norm", "clip_norm"}) {
    torch::manual_seed(3);
    SumOfTables plain;
    torch::optim::SGD reference(plain->parameters(), 0.1);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<SumOfTables>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    for (int step = 0; step < 3; ++step) {
      reference.zero_grad();
      plain->forward(rows).pow(2).sum().backward();
      for (const torch::Tensor& parameter : plain->parameters()) parameter.mutable_grad() = parameter.grad().clone();
      if (way == "clip_norm" || way == "clip_grad_norm") torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.5);
      reference.step();
      strategy.run(
          [&](const torch::Tensor& a) {
            const torch::Tensor loss = model->forward(a).pow(2).sum();
            if (way == "minimize") return sgd.minimize(loss);
            if (way == "clip_norm") return sgd.minimize(loss, {.clip_norm = 0.5});
            sgd.zero_grad();
            loss.backward();
            if (way == "reduce") sgd.reduce_gradients();
            if (way == "clip_grad_norm") sgd.clip_grad_norm(0.5);
            sgd.step();
          },
          split(named, rows));
    }
    SCOPED_TRACE(way);
    expect_equal(model, plain->parameters());
  }
}

TEST_P(GradientsTest, GradientsOfAnotherDtypeOrShapeAreErrorsThatNameTheParameter) {
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const auto step_with = [&](const torch::Tensor& gradient) {
    return error_of([&](const torch::Tensor&, const torch::Tensor&) {
      sgd.zero_grad();
      model->second->bias.mutable_grad() = gradient.to(model->second->bias.device());
      sgd.step();
    });
  };
  EXPECT_THAT(step_with(torch::ones({5}, torch::kFloat)), AllOf(HasSubstr("second.bias"), HasSubstr("dtype")));
  EXPECT_THAT(step_with(torch::ones({1}, torch::kDouble)), AllOf(HasSubstr("second.bias"), HasSubstr("[1]")));
  EXPECT_THAT(step_with(torch::ones({4000}, torch::kDouble)), HasSubstr("second.bias"));
  EXPECT_THAT(step_with(torch::ones({5}, torch::kDouble)), "no error");
}

TEST_P(GradientsTest, NegativeBitsAndOddLayoutsAreResolved) {
  if (named.is_traced()) GTEST_SKIP() << "traced replicas have no lazy bits";
  for (const bool reduces : {false, true}) {
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Mlp>();
    auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
    const torch::Tensor bias = model->second->bias.detach().cpu().clone();
    const torch::Tensor weight = model->second->weight.detach().cpu().clone();
    run([&](const torch::Tensor&, const torch::Tensor&) {
      const auto options = model->second->bias.options().requires_grad(false);
      model->second->bias.mutable_grad() = torch::ones({5}, options)._neg_view();
      model->second->weight.mutable_grad() = torch::full({20, 5}, 2.0, options).t();
      if (reduces) sgd.reduce_gradients();
      sgd.step();
    });
    const auto got = model->parameters();
    EXPECT_TRUE(torch::allclose(got[3].cpu(), bias + named.replicas)) << got[3];
    EXPECT_TRUE(torch::allclose(got[2].cpu(), weight - 2.0 * named.replicas));
  }
}

TEST_P(GradientsTest, UndefinedGradientsCountAsZero) {
  torch::manual_seed(3);
  SumOfTables plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<SumOfTables>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int step = 0; step < 4; ++step) {
    const bool has_second = step == 0 || step == 3;
    const auto loss_with = [&](auto& m, const torch::Tensor& a) {
      const torch::Tensor table = has_second ? m.first + m.second : NoGradientForSecond::apply(m.first, m.second);
      return (a * table).pow(2).sum();
    };
    reference.zero_grad();
    loss_with(*plain, rows).backward();
    reference.step();
    strategy.run([&](const torch::Tensor& a) { sgd.minimize(loss_with(*model, a)); }, split(named, rows));
  }
  expect_equal(model, plain->parameters());
}

TEST_P(GradientsTest, ParametersMayChangeMemoryAndStrides) {
  if (named.is_traced()) GTEST_SKIP() << "traced replicas have no strides";
  torch::manual_seed(3);
  Cnn plain;
  torch::optim::Adam reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Cnn>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  const auto to_channels_last = [](const torch::Tensor& weight) {
    weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast).clone());
  };
  for (int step = 0; step < 6; ++step) {
    reference.zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    reference.step();
    if (step == 2) to_channels_last(model->conv->weight);
    if (step == 4) model->out->weight.set_data(model->out->weight.detach().clone());
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      if (step == 3 && !named.sees_one_copy && !named.stores_on_cpu) {
        to_channels_last(model->conv->weight);
        model->out->weight.set_data(model->out->weight.detach().clone());
      }
      adam.minimize(loss_of(model->forward(a), b));
    });
  }
  expect_equal(model, plain->parameters());
}

TEST_P(GradientsTest, ParametersThatGrowAreErrors) {
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  if (named.is_traced()) GTEST_SKIP() << "traced replicas have no strides";
  auto scope = strategy.scope();
  auto model = module<SumOfTables>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  const auto step = [&](bool grows) {
    return error_of([&](const torch::Tensor& a, const torch::Tensor&) {
      if (grows) model->second.set_data(torch::zeros({8, 3}, model->second.options().requires_grad(false)));
      const torch::Tensor weights = a.sum() * torch::ones_like(model->second).detach();
      adam.minimize((model->first.sum() * a.sum() + (model->second * weights).sum()));
    });
  };
  EXPECT_EQ(step(false), "no error");
  const std::string error = step(true);
  EXPECT_THAT(error, HasSubstr("parameter=second"));
  const bool is_replaced = named.sees_one_copy || named.stores_on_cpu;
  EXPECT_THAT(error, HasSubstr(is_replaced ? "stored once" : "[8, 3]"));
}

TEST_P(GradientsTest, MemoryThatIsStoredOnceMustNotBeReplacedInsideRun) {
  if (!named.sees_one_copy && !named.stores_on_cpu) GTEST_SKIP() << "each replica has its own parameters";
  if (named.replicas == 1 && named.sees_one_copy) GTEST_SKIP() << "one replica";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const std::string error = error_of([&](const torch::Tensor& a, const torch::Tensor& b) {
    model->first->weight.set_data(model->first->weight.detach().clone());
    sgd.minimize(loss_of(model->forward(a), b));
  });
  EXPECT_THAT(error, AllOf(HasSubstr("first.weight"), HasSubstr("set_data")));
}

TEST_P(GradientsTest, MeanOfUnevenBatchesIsTheMeanOfAllRows) {
  for (const std::string way : {"minimize", "clip", "step", "reduce twice"}) {
    torch::manual_seed(3);
    Mlp plain;
    torch::optim::SGD reference(plain->parameters(), 0.1);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Mlp>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1, {.gradients = Gradients::Mean});
    for (int step = 0; step < 3; ++step) {
      // The last replicas have fewer rows, at last none.
      const int64_t count = step == 0 ? 12 : step == 1 || named.is_traced() ? 11 : std::max(1, named.replicas - 1);
      const torch::Tensor images = x.slice(0, 0, count), labels = y.slice(0, 0, count);
      reference.zero_grad();
      torch::nll_loss(plain->forward(images), labels).backward();
      if (way == "clip") torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
      if (way == "reduce twice") torch::nll_loss(plain->forward(images), labels).backward();
      reference.step();
      strategy.run(
          [&](const torch::Tensor& a, const torch::Tensor& b) {
            const auto mean_loss = [&] { return torch::nll_loss(model->forward(a), b); };
            if (way == "minimize") return sgd.minimize(mean_loss());
            if (way == "clip") return sgd.minimize(mean_loss(), {.clip_norm = 0.05});
            sgd.zero_grad();
            mean_loss().backward();
            if (way == "reduce twice") {
              sgd.reduce_gradients();
              mean_loss().backward();
            }
            sgd.step();
          },
          split(named, images), split(named, labels));
    }
    SCOPED_TRACE(way);
    expect_equal(model, plain->parameters());
  }
}

TEST_P(GradientsTest, SumsAreKnownToAllOptimizersOfAParameter) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto clips = optimizer<torch::optim::SGD>(model, 0.1);
  auto steps = optimizer<torch::optim::SGD>(model, 0.1);
  for (int step = 0; step < 3; ++step) {
    reference.zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      clips.zero_grad();
      loss_of(model->forward(a), b).backward();
      clips.clip_grad_norm(0.05);
      steps.step();
    });
  }
  expect_equal(model, plain->parameters());
}

TEST_P(GradientsTest, PureStepsWeighRowsToo) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1, {.gradients = Gradients::Mean});
  auto pure = strategy.pure(
      [&](const torch::Tensor& a, const torch::Tensor& b) { sgd.minimize(torch::nll_loss(model->forward(a), b)); });
  for (int step = 0; step < 4; ++step) {
    const torch::Tensor images = x.slice(0, 0, step == 1 ? 12 : 11), labels = y.slice(0, 0, images.size(0));
    reference.zero_grad();
    torch::nll_loss(plain->forward(images), labels).backward();
    reference.step();
    pure(split(named, images), split(named, labels));
  }
  expect_equal(model, plain->parameters());
}

TEST_P(GradientsTest, MeansAreNotAccumulatedOverRuns) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1, {.gradients = Gradients::Mean});
  run([&](const torch::Tensor& a, const torch::Tensor& b) { torch::nll_loss(model->forward(a), b).backward(); });
  const std::string error = error_of([&](const torch::Tensor& a, const torch::Tensor& b) {
    torch::nll_loss(model->forward(a), b).backward();
    sgd.step();
  });
  EXPECT_THAT(error, AllOf(HasSubstr("first.weight"), HasSubstr("zero_grad()")));
  EXPECT_EQ(error_of([&](const torch::Tensor& a, const torch::Tensor& b) {
              sgd.zero_grad();
              torch::nll_loss(model->forward(a), b).backward();
              sgd.step();
            }),
            "no error");
}

TEST_P(GradientsTest, LearningRatesMayChangeInAMergeFunction) {
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  run([&](const torch::Tensor& a, const torch::Tensor& b) {
    sgd.minimize(loss_of(model->forward(a), b));
    get_replica_context().merge_call([&](const Strategy&) { sgd.set_lr(0.05); });
  });
  EXPECT_EQ(sgd->param_groups()[0].options().get_lr(), 0.05);
}

TEST_P(GradientsTest, LearningRatesHoldFromTheNextStepOfTheRun) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int step = 0; step < 3; ++step) {
    for (const double rate : {0.5, 0.02}) {
      reference.param_groups()[0].options().set_lr(rate);
      reference.zero_grad();
      torch::nll_loss(plain->forward(x), y).backward();
      reference.step();
    }
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      for (const double rate : {0.5, 0.02}) {
        get_replica_context().merge_call([&](const Strategy&) { sgd.set_lr(rate); });
        sgd.minimize(loss_of(model->forward(a), b));
      }
    });
    expect_equal(model, plain->parameters());
  }
}

TEST_P(GradientsTest, StepsWithoutClearingAddUp) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(torch::nn::LinearOptions(1, 1).bias(false));
  {
    const torch::NoGradGuard no_grad;
    model->weight.zero_();
  }
  auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  const double sum = named.replicas * (named.replicas + 1) / 2.0;
  for (const double factor : {1, 3, 6}) {
    strategy.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      model->forward(torch::full({1, 1}, id + 1.0f).to(model->weight.device())).sum().backward();
      sgd.step();
    });
    EXPECT_EQ(model->weight.item<float>(), -factor * sum);
  }
  // The same in one run, and in pure steps.
  strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    for (int i = 0; i < 2; ++i) {
      model->forward(torch::full({1, 1}, id + 1.0f).to(model->weight.device())).sum().backward();
      sgd.step();
    }
  });
  EXPECT_EQ(model->weight.item<float>(), -15 * sum);
  auto step = strategy.pure([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    model->forward(torch::full({1, 1}, id + 1.0f).to(model->weight.device())).sum().backward();
    sgd.step();
  });
  for (int i = 6; i < 12; ++i) {
    step();
    EXPECT_EQ(model->weight.item<float>(), -i * (i + 1) / 2 * sum);
  }
}

TEST_P(GradientsTest, MeanLossesAreReportedOnce) {
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view line) {
    const bool is_slow = line.find("takes more than") != std::string_view::npos;  // a loaded machine
    if (!is_slow) lines.emplace_back(line);
  });
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto summed = optimizer<torch::optim::SGD>(model, 0.1);
  auto averaged = optimizer<torch::optim::SGD>(model, 0.1, {.gradients = Gradients::Mean});
  run([&](const torch::Tensor& a, const torch::Tensor& b) {
    averaged.minimize(torch::nll_loss(model->forward(a), b));
  });
  run([&](const torch::Tensor& a, const torch::Tensor& b) { summed.minimize(-torch::nll_loss(model->forward(a), b)); });
  run([&](const torch::Tensor& a, const torch::Tensor& b) { summed.minimize(torch::nll_loss(model->forward(a), b)); });
  log::set_sink({});
  EXPECT_EQ(lines.size(), named.replicas == 1 ? 0u : 1u);
  for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("Gradients::Mean"));
}

TEST_P(GradientsTest, OneOptimizerForSeveralModulesAndWithoutOptions) {
  torch::manual_seed(3);
  Mlp first_plain, second_plain;
  std::vector<torch::Tensor> parameters = first_plain->parameters();
  for (const torch::Tensor& parameter : second_plain->parameters()) parameters.push_back(parameter);
  torch::optim::Adam reference(parameters, torch::optim::AdamOptions());
  torch::optim::Adam reference_without(first_plain->parameters());
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto first = module<Mlp>();
  auto second = module<Mlp>();
  auto both = optimizer<torch::optim::Adam>(std::tie(first, second), torch::optim::AdamOptions());
  auto without = optimizer<torch::optim::Adam>(first);
  for (int step = 0; step < 2; ++step) {
    reference.zero_grad();
    torch::nll_loss(first_plain->forward(x) + second_plain->forward(x), y).backward();
    reference.step();
    reference.zero_grad();
    torch::nll_loss(first_plain->forward(x), y).backward();
    reference_without.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      both.minimize(loss_of(first->forward(a) + second->forward(a), b));
      without.minimize(loss_of(first->forward(a), b));
    });
  }
  expect_equal(first, first_plain->parameters());
  expect_equal(second, second_plain->parameters());
}

TEST_P(GradientsTest, LearningRatesChangeBetweenRuns) {
  if (named.local == 1) GTEST_SKIP() << "one local replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  std::mutex one_at_a_time;
  const std::string error = error_of([&](const torch::Tensor&, const torch::Tensor&) {
    const std::lock_guard lock(one_at_a_time);
    auto& options = sgd->param_groups()[0].options();
    options.set_lr(options.get_lr() * 0.9);
  });
  EXPECT_THAT(error, AllOf(HasSubstr("learning rate"), HasSubstr("between two runs")));
  EXPECT_THAT(error_of([&](const torch::Tensor&, const torch::Tensor&) { sgd.set_lr(0.2); }), HasSubstr("set_lr"));
  sgd.set_lr(0.2);
  EXPECT_EQ(
      error_of([&](const torch::Tensor& a, const torch::Tensor& b) { sgd.minimize(loss_of(model->forward(a), b)); }),
      "no error");
}

INSTANTIATE_TEST_SUITE_P(Strategies, GradientsTest, ::testing::ValuesIn(all_strategies({{1, 1}, {2, 1}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
