// Modules made from tensors and modules of the program, under every strategy: replicas share nothing, and what is one
// tensor within a replica stays one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;

/// Registers the tensor that it is given.
struct GivenImpl : torch::nn::Module {
  explicit GivenImpl(const torch::Tensor& given) : weight(register_parameter("weight", given)) {}
  torch::Tensor forward(const torch::Tensor& ids) { return weight.index_select(0, ids); }
  torch::Tensor weight;
};
TORCH_MODULE(Given);

/// An embedding whose table is the weight of the output layer, too.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const torch::Tensor& table)
      : embedding(
            register_module("embedding", Embedding(EmbeddingOptions(table.size(0), table.size(1))._weight(table)))),
        out(register_module("out", Linear(torch::nn::LinearOptions(table.size(1), table.size(0)).bias(false)))) {
    out->weight = embedding->weight;
  }
  torch::Tensor forward(const torch::Tensor& ids) { return out->forward(embedding->forward(ids)); }
  Embedding embedding;
  Linear out;
};

class SeparateModulesTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
  torch::Tensor table = torch::arange(12.0).reshape({4, 3});
  const torch::Tensor before = table.clone();

  template <class M>
  void expect_separate(const Module<M>& model) const {
    for (int i = 0; i < named.local; ++i) {
      for (int j = 0; j < i; ++j) {
        for (const auto& a : model.replica(i).parameters()) {
          for (const auto& b : model.replica(j).parameters()) {
            EXPECT_FALSE(a.is_same(b)) << i << " and " << j;
            EXPECT_TRUE(named.sees_one_copy || named.stores_on_cpu || !a.is_alias_of(b)) << i << " and " << j;
          }
        }
        for (const auto& a : model.replica(i).buffers()) {
          for (const auto& b : model.replica(j).buffers()) EXPECT_FALSE(a.is_alias_of(b)) << i << " and " << j;
        }
      }
    }
  }

  /// Trains two steps with the sum of the rows 1 and 2, and compares with plain LibTorch.
  template <class M>
  void expect_trains(const Module<M>& model, const torch::Tensor& wanted) const {
    auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
    for (int step = 0; step < 2; ++step) {
      strategy.run([&] {
        const auto ids = torch::tensor({1, 2}).to(named.device);
        sgd.minimize(model->forward(ids).sum() / named.replicas);
      });
    }
    for (int i = 0; i < named.local; ++i) {
      const auto got = model.replica(i).parameters()[0].detach().cpu();
      EXPECT_TRUE(torch::allclose(got, wanted, 1e-4, 1e-4)) << "replica " << i << got << wanted;
    }
    EXPECT_TRUE(named.local == 1 || torch::equal(table, before)) << "training must not write the tensor outside";
  }

  torch::Tensor rows_moved() const {
    auto wanted = before.clone();
    wanted.slice(0, 1, 3) -= 1;
    return wanted;
  }

  template <class Make>
  static std::string error_of(const Make& make) {
    try {
      make();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "none";
  }
};

TEST_P(SeparateModulesTest, AnEmbeddingFromATable) {
  auto scope = strategy.scope();
  for (const bool sparse : {false, true}) {
    auto model = module<Embedding>(EmbeddingOptions(4, 3)._weight(table).sparse(sparse && !named.is_traced()));
    expect_separate(model);
    expect_trains(model, rows_moved());
    const torch::NoGradGuard no_grad;
    table.copy_(before);
  }
}

TEST_P(SeparateModulesTest, APretrainedEmbeddingInAFunction) {
  auto scope = strategy.scope();
  auto model = module_from([&] {
    return torch::nn::Sequential(
        Embedding::from_pretrained(table, torch::nn::EmbeddingFromPretrainedOptions().freeze(false)));
  });
  expect_separate(model);
  expect_trains(model, rows_moved());
}

TEST_P(SeparateModulesTest, APretrainedEmbeddingAsAnArgument) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Sequential>(
      Embedding::from_pretrained(table, torch::nn::EmbeddingFromPretrainedOptions().freeze(false)));
  expect_separate(model);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  strategy.run([&] { sgd.minimize(model->forward(torch::tensor({1}).to(named.device)).sum() / named.replicas); });
  for (int i = 0; i < named.local; ++i) {
    EXPECT_NEAR(model.replica(i).parameters()[0][1].sum().template item<double>(), 12 - 1.5, 1e-5);
  }
}

TEST_P(SeparateModulesTest, AFrozenTableStaysAsItIs) {
  auto scope = strategy.scope();
  const torch::Tensor before = table.clone();
  auto model = module_from([&] { return Embedding::from_pretrained(table); });
  expect_separate(model);
  for (int i = 0; i < named.local; ++i) {
    EXPECT_FALSE(model.replica(i).weight.requires_grad());
    EXPECT_TRUE(torch::equal(model.replica(i).weight.cpu(), before));
  }
}

TEST_P(SeparateModulesTest, ATensorAsAnArgument) {
  auto scope = strategy.scope();
  auto model = module<Given>(table);
  expect_separate(model);
  expect_trains(model, rows_moved());
}

TEST_P(SeparateModulesTest, ATensorOfTheFunctionIsAnErrorThatNamesIt) {
  if (named.local == 1) GTEST_SKIP() << "one local replica";
  auto scope = strategy.scope();
  const auto error = error_of([&] { module_from([&] { return Given(table); }); });
  EXPECT_THAT(error, HasSubstr("name=weight"));
  EXPECT_THAT(error, HasSubstr("tensor.detach().clone()"));
  auto model = module_from([&] { return Given(table.detach().clone()); });
  expect_trains(model, rows_moved());
}

TEST_P(SeparateModulesTest, MemoryOfATensorOutside) {
  auto scope = strategy.scope();
  auto model = module_from([&] { return Given(table.detach()); });
  expect_separate(model);
  expect_trains(model, rows_moved());
}

TEST_P(SeparateModulesTest, ATieWithinAReplicaStaysOne) {
  auto scope = strategy.scope();
  auto model = module_from([&] { return std::make_shared<TiedImpl>(table); });
  for (int i = 0; i < named.local; ++i) {
    EXPECT_TRUE(model.replica(i).out->weight.is_same(model.replica(i).embedding->weight));
    for (int j = 0; j < i; ++j) {
      EXPECT_FALSE(model.replica(i).out->weight.is_same(model.replica(j).out->weight));
    }
  }
  auto plain = before.clone().requires_grad_(true);
  for (int step = 0; step < 2; ++step) {
    const auto gradient =
        torch::autograd::grad({torch::matmul(plain.index_select(0, torch::tensor({1, 2})), plain.t()).sum()}, {plain});
    plain = (plain - 0.5 * gradient[0]).detach().requires_grad_(true);
  }
  expect_trains(model, plain.detach());
}

TEST_P(SeparateModulesTest, OneLayerTwiceStaysOne) {
  auto scope = strategy.scope();
  const Linear layer(3, 3);
  auto model = module<torch::nn::Sequential>(layer, torch::nn::Linear(3, 3), layer);
  expect_separate(model);
  for (int i = 0; i < named.local; ++i) {
    auto& first = *model.replica(i).ptr(0)->template as<torch::nn::LinearImpl>();
    auto& last = *model.replica(i).ptr(2)->template as<torch::nn::LinearImpl>();
    EXPECT_TRUE(first.weight.is_same(last.weight)) << i;
    EXPECT_TRUE(first.bias.is_same(last.bias)) << i;
  }
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  EXPECT_EQ(sgd->param_groups()[0].params().size(), 4);
}

TEST_P(SeparateModulesTest, ViewsOfOneMemoryStayViews) {
  auto scope = strategy.scope();
  if (named.device.type() != at::kCPU) GTEST_SKIP() << "Module::to separates views";
  auto model = module_from([&] {
    auto made = std::make_shared<torch::nn::Module>();
    made->register_buffer("whole", table.detach());
    made->register_buffer("row", table.detach()[1]);
    return made;
  });
  expect_separate(model);
  for (int i = 0; i < named.local; ++i) {
    const auto buffers = model.replica(i).named_buffers();
    EXPECT_TRUE(buffers["row"].is_alias_of(buffers["whole"])) << i;
    buffers["whole"].fill_(i);
    EXPECT_EQ(buffers["row"].sum().template item<double>(), 3 * i);
  }
}

TEST_P(SeparateModulesTest, WeightsOfALoss) {
  auto scope = strategy.scope();
  auto loss =
      module_from([&] { return torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().weight(table[1])); });
  expect_separate(loss);
  auto same = module<torch::nn::CrossEntropyLoss>(torch::nn::CrossEntropyLossOptions().weight(table[1]));
  expect_separate(same);
}

TEST_P(SeparateModulesTest, AWeightOfAnotherModuleOfTheReplica) {
  auto scope = strategy.scope();
  auto first = module<Linear>(3, 3);
  if (named.sees_one_copy || named.stores_on_cpu) {
    EXPECT_THAT(error_of([&] { module_from([&] { return Given(first->weight); }); }),
                HasSubstr("belongs to one module"));
    return;
  }
  auto second = module_from([&] { return Given(first->weight); });
  for (int i = 0; i < named.local; ++i) {
    EXPECT_TRUE(second.replica(i).weight.is_same(first.replica(i).weight)) << i;
  }
  expect_separate(second);
}

TEST_P(SeparateModulesTest, ReplicasHaveTheSameParameters) {
  if (named.local == 1) GTEST_SKIP() << "one local replica";
  auto scope = strategy.scope();
  int made = 0;
  const auto other_shape = error_of([&] { module_from([&] { return Linear(3, 2 + made++); }); });
  EXPECT_THAT(other_shape, HasSubstr("parameter=weight, replica 0 has float32[2, 3], replica 1 has float32[3, 3]"));
  made = 0;
  const auto other_dtype = error_of([&] {
    module_from([&] {
      Linear linear(3, 2);
      linear->to(made++ == 0 ? torch::kFloat : torch::kDouble);
      return linear;
    });
  });
  EXPECT_THAT(other_dtype, HasSubstr("parameter=weight, replica 0 has float32[2, 3], replica 1 has float64[2, 3]"));
  made = 0;
  const auto without_bias =
      error_of([&] { module_from([&] { return Linear(torch::nn::LinearOptions(3, 2).bias(made++ == 0)); }); });
  EXPECT_THAT(without_bias, HasSubstr("parameter=bias is missing on replica 1"));
  made = 0;
  const auto other_buffer = error_of([&] {
    module_from([&] {
      auto with_buffer = std::make_shared<torch::nn::Module>();
      with_buffer->register_buffer("state", torch::zeros({1 + made++}));
      return with_buffer;
    });
  });
  EXPECT_THAT(other_buffer, HasSubstr("buffer=state"));
}

TEST_P(SeparateModulesTest, WorkersHaveTheSameParameters) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  auto scope = strategy.scope();
  const auto error = error_of([&] { module<Linear>(3, named.first == 0 ? 2 : 4); });
  torch::manual_seed(1);  // workers have drawn different numbers
  EXPECT_THAT(error, HasSubstr(named.first == 0 ? "weight: float32[2, 3]" : "weight: float32[4, 3]"));
  EXPECT_EQ(module<Linear>(3, 2)->weight.size(0), 2) << "and the next one is made";
}

TEST_P(SeparateModulesTest, TablesThatAreWrittenWhenTheyAreReadAreRefused) {
  auto scope = strategy.scope();
  const auto make = [] { return torch::nn::Sequential(Linear(3, 3), Embedding(EmbeddingOptions(4, 2).max_norm(1.0))); };
  if (named.replicas == 1) {
    EXPECT_NO_THROW(module_from(make));
  } else {
    EXPECT_THAT(error_of([&] { module_from(make); }), HasSubstr("module=1, max_norm=1"));
    EXPECT_THROW(module<torch::nn::EmbeddingBag>(torch::nn::EmbeddingBagOptions(4, 2).max_norm(2.0)),
                 c10::NotImplementedError);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, SeparateModulesTest, ::testing::ValuesIn(all_strategies()), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
