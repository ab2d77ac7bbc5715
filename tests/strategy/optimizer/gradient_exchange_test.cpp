#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"

#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using tests::mirrored;
using tests::replica_id;

at::Tensor with_gradient(const at::Tensor& value, const at::Tensor& gradient) {
  at::Tensor parameter = value.clone().requires_grad_(true);
  if (gradient.defined()) parameter.mutable_grad() = gradient;
  return parameter;
}

at::Tensor expanded_rows() {
  return at::_sparse_coo_tensor_unsafe(at::tensor(std::vector<int64_t>{1, 3}, at::kLong).reshape({1, 2}),
                                       at::ones({1}).expand({2, 3}), {5, 3});
}

TEST(GradientGate, PlainGradientsPassAsTheyAre) {
  const at::Tensor parameter = with_gradient(at::zeros({2, 3}), at::ones({2, 3}));
  EXPECT_TRUE(exchanged_gradient(parameter, at::kCPU).is_same(parameter.grad()));
  EXPECT_TRUE(gradient_to_reduce(parameter).is_same(parameter.grad()));
  EXPECT_FALSE(exchanged_gradient(with_gradient(at::zeros({2}), {}), at::kCPU).defined());
}

TEST(GradientGate, DenseGradientsBecomeContiguous) {
  const at::Tensor gradient = at::arange(6.0).reshape({3, 2}).t();
  const at::Tensor parameter = with_gradient(at::zeros({2, 3}), gradient);
  const at::Tensor exchanged = exchanged_gradient(parameter, at::kCPU);
  EXPECT_TRUE(exchanged.is_contiguous());
  EXPECT_TRUE(exchanged.equal(gradient));
  EXPECT_TRUE(parameter.grad().is_same(gradient)) << "the parameter's gradient is not replaced";
  const at::Tensor reduced_in_place = gradient_to_reduce(parameter);
  EXPECT_TRUE(reduced_in_place.is_contiguous());
  EXPECT_TRUE(parameter.grad().is_same(reduced_in_place));
}

TEST(GradientGate, SparseGradientsGetContiguousValues) {
  const at::Tensor parameter = with_gradient(at::zeros({5, 3}), expanded_rows());
  const at::Tensor exchanged = exchanged_gradient(parameter, at::kCPU);
  EXPECT_TRUE(exchanged.is_sparse());
  EXPECT_TRUE(exchanged._values().is_contiguous());
  EXPECT_TRUE(exchanged.to_dense().equal(expanded_rows().to_dense()));
}

TEST(GradientGate, RowsOfDenseAndAbsentGradients) {
  const at::Tensor dense = at::randn({4, 2});
  EXPECT_TRUE(as_rows(dense).is_sparse());
  EXPECT_EQ(as_rows(dense).sparse_dim(), 1);
  EXPECT_TRUE(as_rows(dense).to_dense().equal(dense));
  EXPECT_TRUE(no_rows_of(dense).to_dense().equal(at::zeros({4, 2})));
}

/// Separates a parameter's gradient as soon as backward has written it, and notes whether it was copied.
class SeparatingHook final : public torch::autograd::FunctionPostHook {
 public:
  SeparatingHook(at::Tensor parameter, bool& copied) : parameter_(std::move(parameter)), copied_(copied) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    const void* const before = parameter_.grad().data_ptr();
    separate_from_graph(parameter_.mutable_grad(), inputs);
    copied_ = parameter_.grad().data_ptr() != before;
    return outputs;
  }

 private:
  at::Tensor parameter_;
  bool& copied_;
};

TEST(GradientGate, GradientsAreSeparatedFromTheGraphOnlyWhereMemoryIsShared) {
  const auto is_copied = [](const at::Tensor& parameter, const at::Tensor& loss) {
    bool copied = false;
    const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    accumulator->add_post_hook(std::make_unique<SeparatingHook>(parameter, copied));
    loss.backward();
    return copied;
  };
  const at::Tensor weight = at::randn({3, 4}).requires_grad_(true);
  const at::Tensor bias = at::randn({3}).requires_grad_(true);
  const at::Tensor x = at::randn({5, 4});
  EXPECT_FALSE(is_copied(weight, at::linear(x, weight, bias).pow(2).sum()));
  EXPECT_FALSE(is_copied(bias, at::linear(x, weight, bias).pow(2).sum())) << "added to the gradient that was there";
  const at::Tensor a = at::randn({2, 2}).requires_grad_(true);
  const at::Tensor b = at::randn({2, 2}).requires_grad_(true);
  const bool first = is_copied(a, (a.unsqueeze(0) + b.unsqueeze(0)).pow(2).sum());
  EXPECT_TRUE(first || !a.grad().is_alias_of(b.grad()));
}

TEST(GradientGate, GradientsThatOverlapAreSeparated) {
  const at::Tensor memory = at::ones({10});
  const std::vector<at::Tensor> parameters{
      with_gradient(at::zeros({4}), memory.slice(0, 0, 4)), with_gradient(at::zeros({4}), memory.slice(0, 4, 8)),
      with_gradient(at::zeros({4}), memory.slice(0, 6, 10)), with_gradient(at::zeros({4}), {})};
  ReducedGradients reduced(parameters, {});
  separate_gradients(parameters, reduced);
  EXPECT_TRUE(parameters[0].grad().is_alias_of(memory)) << "parts of one tensor that do not overlap stay there";
  EXPECT_TRUE(parameters[1].grad().is_alias_of(memory));
  EXPECT_FALSE(parameters[2].grad().is_alias_of(memory));
  parameters[1].mutable_grad() = parameters[0].grad();
  separate_gradients(parameters, reduced);
  EXPECT_FALSE(parameters[1].grad().is_alias_of(memory)) << "one tensor, two parameters";
}

TEST(GradientGate, PresenceIsThatOfTheParameters) {
  const auto of = [](const std::vector<at::Tensor>& parameters) {
    return gradient_presence(parameters, ReducedGradients(parameters, {}));
  };
  const ReplicaGradients first =
      of({with_gradient(at::zeros({5, 3}), {}), with_gradient(at::zeros({5, 3}), at::zeros({5, 3})),
          with_gradient(at::zeros({5, 3}), expanded_rows())});
  EXPECT_THAT(presence({&first}), ElementsAre(kAbsent, kDense, kSparse));
  const ReplicaGradients second =
      of({with_gradient(at::zeros({5, 3}), expanded_rows()), with_gradient(at::zeros({5, 3}), {}),
          with_gradient(at::zeros({5, 3}), at::zeros({5, 3}))});
  EXPECT_THAT(presence({&first, &second}), ElementsAre(kSparse, kDense, kSparse));
}

class LocalExchangeTest : public tests::ReplicasTest {
 protected:
  static constexpr int kReplicas = 3;

  LocalExchangeTest() {
    for (int r = 0; r < kReplicas; ++r) {
      replicas_[r].parameters = {with_gradient(at::zeros({4}), at::full({4}, r + 1.0)),
                                 with_gradient(at::zeros({2, 3}), r == 1 ? at::ones({3, 2}).t() : at::Tensor()),
                                 with_gradient(at::zeros({2}), {}),
                                 with_gradient(at::zeros({5, 3}), r == 0 ? at::Tensor() : expanded_rows())};
      replicas_[r].stored = replicas_[r].parameters;
    }
  }

  /// Runs `work(exchange, parameters, reduced)` on all replicas.
  template <class Work>
  void run(const Work& work) {
    const MirroredStrategy strategy = mirrored(kReplicas);
    strategy.run([&] {
      const int replica = replica_id();
      LocalExchange exchange(Access::impl(strategy), replica, kReplicas, replicas_[replica]);
      ReducedGradients reduced(replicas_[replica].parameters, {replica == 0 ? SumShare::Whole : SumShare::None});
      work(exchange, replicas_[replica], reduced);
    });
  }

  std::vector<ReplicaParameters> replicas_ = std::vector<ReplicaParameters>(kReplicas);
};

TEST_F(LocalExchangeTest, ReplicasReadWhatTheOthersPublish) {
  run([&](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    EXPECT_EQ(exchange.scope().num_readers, kReplicas);
    EXPECT_EQ(exchange.scope().reader, replica_id());
    EXPECT_TRUE(exchange.scope().reaches_all);
    ReplicaGradients published = exchange.publish(reduced);
    EXPECT_EQ(published.parameters[0].data, here.stored[0].data_ptr());
    exchange.collective("test", published, [&](const AllGradients& all) {
      ASSERT_EQ(all.size(), static_cast<size_t>(kReplicas));
      EXPECT_EQ(all[static_cast<size_t>(replica_id())], &published);
      for (int r = 0; r < kReplicas; ++r) {
        EXPECT_EQ(all[r]->parameters[0].data, replicas_[r].stored[0].data_ptr());
        EXPECT_EQ(*reinterpret_cast<const float*>(all[r]->parameters[0].gradient), static_cast<float>(r + 1));
      }
      EXPECT_THAT(presence(all), ElementsAre(kDense, kDense, kAbsent, kSparse));
    });
  });
}

TEST_F(LocalExchangeTest, ReduceReplacesGradientsBySums) {
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.reduce(reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, 6.0)));
    EXPECT_TRUE(here.parameters[1].grad().equal(at::ones({2, 3})));
    EXPECT_FALSE(here.parameters[2].grad().defined());
    EXPECT_TRUE(here.parameters[3].grad().is_sparse());
    EXPECT_TRUE(here.parameters[3].grad().to_dense().equal(expanded_rows().to_dense() * 2));
  });
}

TEST_F(LocalExchangeTest, SumSkipsWhatIsNamed) {
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.sum({kDense, kDense, kAbsent, kSparse}, {1, 0, 0, 1}, reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, replica_id() + 1.0)));
    EXPECT_TRUE(here.parameters[1].grad().equal(at::ones({2, 3})));
  });
}

TEST_F(LocalExchangeTest, SumsAreNotSummedAgain) {
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.reduce(reduced);
    exchange.reduce(reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, 6.0)));
    EXPECT_TRUE(here.parameters[3].grad().to_dense().equal(expanded_rows().to_dense() * 2));
  });
}

TEST_F(LocalExchangeTest, WhatBackwardAddsToASumIsSummedAlone) {
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.reduce(reduced);
    here.parameters[0].grad().mul_(0.5);
    EXPECT_TRUE(reduced.is_sum(0)) << "it was written in place";
    // Only two of the three replicas reach the parameter.
    if (replica_id() != 1) (here.parameters[0].sum() * (replica_id() + 1.0)).backward();
    EXPECT_EQ(reduced.is_sum(0), replica_id() == 1);
    exchange.reduce(reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, 3.0 + 1.0 + 3.0))) << here.parameters[0].grad();
  });
}

TEST_F(LocalExchangeTest, ClearedSumsAreForgotten) {
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.reduce(reduced);
    here.parameters[0].mutable_grad().reset();
    here.parameters[1].grad().zero_();
    here.parameters[0].sum().backward();
    here.parameters[1].sum().backward();
    exchange.reduce(reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, 3.0)));
    EXPECT_TRUE(here.parameters[1].grad().equal(at::full({2, 3}, 3.0)));
  });
}

TEST_F(LocalExchangeTest, ReplacedSumsAreAnErrorUntilTheyAreUsed) {
  EXPECT_THROW(run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
                 exchange.reduce(reduced);
                 here.parameters[0].mutable_grad() = at::ones({4});
                 exchange.publish(reduced);
               }),
               c10::ValueError);
  run([](LocalExchange& exchange, const ReplicaParameters& here, ReducedGradients& reduced) {
    exchange.reduce(reduced);
    reduced.set_used();
    here.parameters[0].mutable_grad() = at::ones({4});
    exchange.reduce(reduced);
    EXPECT_TRUE(here.parameters[0].grad().equal(at::full({4}, 3.0)));
  });
}

TEST(LocalExchange, OneReplicaMeetsNobody) {
  ReplicaParameters alone;
  alone.parameters = {with_gradient(at::zeros({2}), at::ones({2}))};
  alone.stored = alone.parameters;
  LocalExchange exchange(default_strategy(), 0, 1, alone);
  ReducedGradients reduced(alone.parameters, {});
  ReplicaGradients published = exchange.publish(reduced);
  bool called = false;
  exchange.collective("test", published,
                      [&](const AllGradients& all) { called = all.size() == 1 && all[0] == &published; });
  EXPECT_TRUE(called);
  exchange.reduce(reduced);
  EXPECT_TRUE(alone.parameters[0].grad().equal(at::ones({2})));
}

}  // namespace
}  // namespace lockstep::detail
