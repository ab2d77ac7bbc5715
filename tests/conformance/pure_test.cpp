// A pure step does what `run` does, at every call and under every strategy, whatever changes between two calls.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr int kPureCalls = 12;
const auto kPureDoubles = torch::TensorOptions().dtype(torch::kDouble);

/// Calls a function by `run`, or as a pure step.
template <class F>
auto as_run(const Strategy& strategy, F function) {
  return [strategy, function](const auto&... arguments) mutable { return strategy.run(function, arguments...); };
}
template <class F>
auto as_pure(const Strategy& strategy, F function) {
  return strategy.pure(function);
}

/// Layers whose options may change.
struct OptionsNetImpl : torch::nn::Module {
  OptionsNetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("second", second);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(dropout->forward(torch::tanh(norm->forward(first->forward(x)))));
  }
  torch::nn::Linear first{3, 4};
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Dropout dropout{0.2};
  torch::nn::Linear second{4, 1};
};
TORCH_MODULE(OptionsNet);

class PureTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  PureTest() : named(GetParam()), strategy(named.make()) {}

  /// The tensors of `body(make_step)` with `run` and with `pure` are equal; `make_step(function)` makes the step.
  template <class Body>
  void expect_same(const Body& body) const {
    torch::manual_seed(11);
    const std::vector<torch::Tensor> wanted = body([&](auto function) { return as_run(strategy, function); });
    torch::manual_seed(11);
    const std::vector<torch::Tensor> got = body([&](auto function) { return as_pure(strategy, function); });
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(torch::allclose(got[i].cpu(), wanted[i].cpu(), 1e-10, 1e-12))
          << "tensor " << i << ": pure gives " << got[i].cpu() << ", run gives " << wanted[i].cpu();
    }
  }

  PerReplica<torch::Tensor> rows(int call) const {
    return split(named, torch::arange(12 * 3, kPureDoubles).view({12, 3}).add(call).sin());
  }

  template <class T>
  void keep(const T& result, std::vector<torch::Tensor>& kept) const {
    for (const torch::Tensor& one : strategy.local_results(result)) kept.push_back(one.detach().cpu().clone());
  }

  const NamedStrategy named;
  const Strategy strategy;
};

TEST_P(PureTest, ParametersMayBeFrozen) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<OptionsNet>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    auto step = make_step([&](const torch::Tensor& x) { sgd.minimize(average_loss(model->forward(x).pow(2).sum(1))); });
    for (int call = 0; call < kPureCalls; ++call) {
      if (call == 6) {
        for (auto& parameter : model->first->parameters()) parameter.requires_grad_(false);
      }
      step(rows(call));
    }
    std::vector<torch::Tensor> kept;
    for (const auto& parameter : model->parameters()) kept.push_back(parameter.detach().cpu());
    return kept;
  });
}

TEST_P(PureTest, OptionsOfLayersMayChange) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<OptionsNet>();
    auto step = make_step([&](const torch::Tensor& x) { return model->forward(x).detach(); });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < kPureCalls; ++call) {
      for (int r = 0; r < model.num_replicas(); ++r) {
        if (call == 5) model.replica(r).dropout->options.p(0.7);
        if (call == 7) model.replica(r).norm->options.momentum(0.5);
      }
      keep(step(rows(call)), kept);
    }
    for (const auto& buffer : model->buffers()) kept.push_back(buffer.detach().cpu());
    return kept;
  });
}

TEST_P(PureTest, TheGradientModeMayChange) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<OptionsNet>();
    model.eval();
    auto step = make_step([&](const torch::Tensor& x) {
      const auto y = model->forward(x);
      return (y.requires_grad() ? y * 2 : y * 3).detach();
    });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < kPureCalls; ++call) {
      const torch::AutoGradMode mode(call % 6 < 4);
      keep(step(rows(call)), kept);
    }
    return kept;
  });
}

TEST_P(PureTest, ResultsKeepTheirGraphs) {
  if (named.stores_on_cpu || named.sees_one_copy) GTEST_SKIP() << "parameters that are stored once keep their dtype";
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(3, 1);
    for (int r = 0; r < model.num_replicas(); ++r) model.replica(r).to(torch::kDouble);
    auto step = make_step([&](const torch::Tensor& x) { return model->forward(x).pow(2).sum(); });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < 6; ++call) {
      const auto results = strategy.local_results(step(rows(call)));
      for (size_t r = 0; r < results.size(); ++r) {
        EXPECT_TRUE(results[r].requires_grad()) << "call " << call;
        if (!results[r].requires_grad()) continue;
        kept.push_back(torch::autograd::grad({results[r]}, {model.replica(int(r)).weight})[0].cpu());
      }
    }
    return kept;
  });
}

TEST_P(PureTest, ValuesThatAreReadAreThoseOfTheCall) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<OptionsNet>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    std::vector<double> totals(static_cast<size_t>(named.replicas), 0);
    auto step = make_step([&](const torch::Tensor& x) {
      const auto loss = average_loss(model->forward(x).pow(2).sum(1));
      sgd.minimize(loss);
      totals[get_replica_context().replica_id_in_sync_group()] += loss.template item<double>();
    });
    for (int call = 0; call < kPureCalls; ++call) step(rows(call));
    return std::vector<torch::Tensor>{torch::tensor(totals, kPureDoubles)};
  });
}

TEST_P(PureTest, ValuesOfArgumentsMayBeRead) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](const torch::Tensor& x) {
      const bool positive = x[0][0].template item<double>() > 0;
      return (positive ? x * 2 : x + 1).sum();
    });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < kPureCalls; ++call) {
      // Replicas that are traced take the same branch.
      keep(step(split(named, torch::full({12, 3}, call + 1, kPureDoubles).sin())), kept);
    }
    return kept;
  });
}

TEST_P(PureTest, NumbersMayChange) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](const torch::Tensor& x, double factor, int64_t offset, bool negate) {
      const auto y = x * factor + offset;
      return (negate ? -y : y).sum() * (1 - factor);
    });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < 24; ++call) {
      keep(step(rows(call), 0.5 + 0.25 * (call / 2), int64_t{call % 2 == 0 ? 3 : call}, call % 5 == 0), kept);
    }
    return kept;
  });
}

TEST_P(PureTest, EqualNumbersMayBecomeDifferent) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](const torch::Tensor& x, double a, double b) { return (x * a + x.cos() * b).sum(); });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < 20; ++call) keep(step(rows(call), 1.5 + call, 1.5 + (call < 9 ? call : 2 * call)), kept);
    return kept;
  });
}

TEST_P(PureTest, ArgumentsMayBeWrittenInPlace) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](torch::Tensor x) {
      x.mul_(2).add_(1);
      return x.sum();
    });
    std::vector<torch::Tensor> kept;
    std::vector<PerReplica<torch::Tensor>> batches;
    for (int call = 0; call < 6; ++call) {
      batches.push_back(rows(call));
      keep(step(batches.back()), kept);
    }
    keep(step(batches.front()), kept);
    for (const auto& batch : batches) keep(batch, kept);
    return kept;
  });
}

TEST_P(PureTest, ArgumentsMayBeOneTensor) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](const torch::Tensor& a, const torch::Tensor& b) { return (a * 2 + b.cos()).sum(); });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < 5; ++call) {
      const auto x = rows(call);
      keep(step(x, x), kept);
    }
    for (int call = 0; call < 5; ++call) keep(step(rows(call), rows(call + 1)), kept);
    return kept;
  });
}

TEST_P(PureTest, ArgumentsMayBeViews) {
  expect_same([&](auto make_step) {
    auto step = make_step([&](const torch::Tensor& x) { return (x * x).sum(0); });
    std::vector<torch::Tensor> kept;
    std::vector<torch::Tensor> alive;
    for (int call = 0; call < 6; ++call) {
      std::vector<torch::Tensor> views;
      for (const torch::Tensor& part : strategy.local_results(rows(call))) {
        alive.push_back(part);
        views.push_back(part.t());
      }
      keep(step(PerReplica<torch::Tensor>(views)), kept);
    }
    return kept;
  });
}

TEST_P(PureTest, StateMayBeACopyOfOtherState) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    const Variable online(torch::ones({3}, kPureDoubles), {.aggregation = VariableAggregation::Mean});
    const Variable target(torch::zeros({3}, kPureDoubles), {.aggregation = VariableAggregation::Mean});
    auto train = make_step([&](const torch::Tensor& x) { online.assign_add(x.mean(0)); });
    auto evaluate = make_step([&](const torch::Tensor& x) { return (x * target.value()).sum(); });
    std::vector<torch::Tensor> kept;
    for (int call = 0; call < kPureCalls; ++call) {
      if (call % 5 == 0) target.assign(online.read_value());
      train(rows(call));
      keep(evaluate(rows(call)), kept);
    }
    return kept;
  });
}

TEST_P(PureTest, RatesOfOptimizersOnTheHostMayChange) {
  expect_same([&](auto make_step) {
    auto scope = strategy.scope();
    auto model = module<OptionsNet>();
    auto rmsprop = optimizer<torch::optim::RMSprop>(model, torch::optim::RMSpropOptions(0.01));
    auto step =
        make_step([&](const torch::Tensor& x) { rmsprop.minimize(average_loss(model->forward(x).pow(2).sum(1))); });
    for (int call = 0; call < kPureCalls; ++call) {
      rmsprop.set_lr(0.01 / (1 + call));
      step(rows(call));
    }
    std::vector<torch::Tensor> kept;
    for (const auto& parameter : model->parameters()) kept.push_back(parameter.detach().cpu());
    return kept;
  });
}

constexpr TpuSize kPureSizes[] = {{1, 1}, {2, 1}};
INSTANTIATE_TEST_SUITE_P(Strategies, PureTest, ::testing::ValuesIn(all_strategies(kPureSizes)), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
