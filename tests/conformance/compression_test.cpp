// Compression of gradients under every strategy: it changes what workers send, and nothing where they send nothing.

#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

/// What a training with a compression ends with.
struct Trained {
  torch::Tensor weight;
  double first_loss = 0;
  double last_loss = 0;
  uint64_t bytes_sent = 0;
  int warnings = 0;
};

class CompressionTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  /// Fits a linear model of 32 x 24 weights to data that one describes; every step with all rows.
  Trained train(const GradientCompression& compression) const {
    const Strategy strategy = named.make();
    torch::manual_seed(5);
    const torch::Tensor x = torch::randn({48, 32});
    const torch::Tensor y = x.mm(torch::randn({32, 24})) + 1;
    const auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(32, 24);
    Trained trained;
    log::set_sink([&](log::Level, std::string_view line) {
      if (line.find("compression of gradients has no effect") != std::string_view::npos) ++trained.warnings;
    });
    auto optimizer =
        lockstep::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.8), {.compression = compression});
    log::set_sink({});
    const auto& impl = detail::Access::impl(strategy);
    const uint64_t before = impl.bytes_sent();
    const int num_steps = sends_gradients ? 48 : 8;
    for (int step = 0; step < num_steps; ++step) {
      const auto losses = strategy.run(
          [&](torch::Tensor x_own, torch::Tensor y_own) {
            const torch::Tensor each = (model->forward(x_own) - y_own).square().mean(1);
            const torch::Tensor loss = average_loss(each, x.size(0));
            optimizer.minimize(loss);
            // The weights of all replicas are the same bits.
            if (step % 16 == 0) {
              const torch::Tensor own = model->weight.detach();
              const torch::Tensor first = get_replica_context().broadcast(own);
              EXPECT_TRUE(torch::equal(own.cpu(), first.cpu())) << compression << ", step " << step;
            }
            return loss.detach();
          },
          split(named, x), split(named, y));
      const double loss = strategy.reduce("sum", losses).item<double>();
      if (step == 0) trained.first_loss = loss;
      trained.last_loss = loss;
    }
    trained.bytes_sent = impl.bytes_sent() - before;
    trained.weight = model.replica(0).weight.detach().cpu().clone();
    return trained;
  }

  NamedStrategy named = GetParam();
  /// Whether workers send gradients in messages. Looks at a strategy, which joins a job: once.
  const bool sends_gradients = named.has_workers() && detail::Access::impl(named.make()).shared_rendezvous() == nullptr;
};

TEST_P(CompressionTest, TrainingConverges) {
  const Trained plain = train(compression::None{});
  EXPECT_EQ(plain.warnings, 0);
  const std::pair<GradientCompression, double> compressions[] = {
      {compression::Float16{}, 0.6},
      {compression::PowerSGD{.rank = 4, .start_step = 4}, 0.6},
      {compression::TopK{.fraction = 0.3}, 0.9},
  };
  for (const auto& [compression, fraction_of_bytes] : compressions) {
    const Trained trained = train(compression);
    if (!sends_gradients) {
      EXPECT_EQ(trained.warnings, 1) << compression;
      EXPECT_TRUE(torch::equal(trained.weight, plain.weight)) << compression;
      continue;
    }
    EXPECT_EQ(trained.warnings, 0) << compression;
    EXPECT_FALSE(torch::equal(trained.weight, plain.weight)) << compression;
    EXPECT_LT(plain.last_loss, 0.5 * plain.first_loss);
    EXPECT_LT(trained.last_loss, 1.2 * plain.last_loss + 0.03 * plain.first_loss) << compression;
    if (named.local > 1) continue;  // small messages between the replicas of a worker count more than gradients
    EXPECT_LT(static_cast<double>(trained.bytes_sent), 1.3 * fraction_of_bytes * static_cast<double>(plain.bytes_sent))
        << compression;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, CompressionTest, ::testing::ValuesIn(all_strategies(TpuSize{2, 1})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
