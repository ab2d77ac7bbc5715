// The examples of TensorFlow's page of TPUStrategy at their printed size, on eight host devices, and which TPU is used.

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/xla/eight_devices.h"

namespace lockstep::xla::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// An address of a network that is reserved for documentation: no machine has it.
constexpr const char* kOtherMachine = "grpc://192.0.2.1:8470";

class TpuPageTest : public EightDevicesTest {
 protected:
  void SetUp() override {
    EightDevicesTest::SetUp();
    if (IsSkipped()) return;
    experimental_connect_to_cluster(resolver_);
    topology_ = std::make_unique<tpu::Topology>(initialize_tpu_system(resolver_));
  }

  std::shared_ptr<ClusterResolver> resolver_ = std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = "local"});
  std::unique_ptr<tpu::Topology> topology_;
};

/// Eight devices whose z size is 2, as the page's computation shape [1, 2, 2, 2] needs.
tpu::Topology deep_topology() {
  std::vector<tpu::MeshCoordinates> coordinates;
  for (int i = 0; i < 8; ++i) coordinates.push_back({0, i / 4, i / 2 % 2, i % 2});
  return tpu::Topology({1, 2, 2, 2}, {coordinates});
}

/// A function of images (batch, width, height, channel) whose rows and columns need their neighbours.
torch::Tensor convolved(const torch::Tensor& images, const torch::Tensor& kernel) {
  return torch::conv2d(images.permute({0, 3, 1, 2}), kernel, {}, 1, 1).tanh();
}

TEST_F(TpuPageTest, OperationsAreAssignedToALogicalDevice) {
  const auto assignment =
      tpu::DeviceAssignment::build(*topology_, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  const TPUStrategy strategy(resolver_, assignment);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.num_logical_devices(), 2);
  auto inputs = strategy.experimental_distribute_dataset(data::from_tensor_slices(torch::arange(8.0)).batch(8));
  auto iterator = inputs.iterator();
  std::vector<std::string> errors;
  log::set_sink([&](log::Level level, std::string_view line) {
    if (level == log::Level::Error) errors.emplace_back(line);
  });
  const auto step = [&](const torch::Tensor& own) {
    const auto output = torch::add(own, own);
    return strategy.experimental_assign_to_logical_device(output, 0);
  };
  const auto outputs = strategy.local_results(strategy.run(step, iterator.get_next()));
  strategy.run(step, torch::ones({2}));
  log::set_sink({});
  ASSERT_EQ(outputs.size(), 4U);
  for (int replica = 0; replica < 4; ++replica) {
    EXPECT_TRUE(torch::equal(outputs[replica].cpu(), torch::tensor({4.0F * replica, 4.0F * replica + 2})));
  }
  ASSERT_EQ(errors.size(), 1U) << "what is not placed is said once";
  EXPECT_THAT(errors[0], HasSubstr("all logical devices of the replica compute"));
}

TEST_F(TpuPageTest, TheExampleOfReplicationHasTooFewLogicalDevices) {
  const auto assignment =
      tpu::DeviceAssignment::build(*topology_, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  const TPUStrategy strategy(resolver_, assignment);
  const auto split = [&](const torch::Tensor& images) {
    return strategy.experimental_split_to_logical_devices(images, {1, 2, 4, 1});
  };
  EXPECT_THAT(error_of([&] {
                strategy.run(split, torch::ones({1, 4, 4, 1}));
              }),
              AllOf(HasSubstr("parts=8"), HasSubstr("logical devices=2")));
}

TEST_F(TpuPageTest, ImagesAreSplitOverEightLogicalDevices) {
  EXPECT_THAT(error_of([&] {
                tpu::DeviceAssignment::build(*topology_, {.computation_shape = {1, 2, 2, 2}, .num_replicas = 1});
              }),
              HasSubstr("computation_shape"))
      << "a mesh of 2x2x1x2 is not deep enough, as in TensorFlow";
  const auto assignment =
      tpu::DeviceAssignment::build(deep_topology(), {.computation_shape = {1, 2, 2, 2}, .num_replicas = 1});
  const TPUStrategy strategy(resolver_, assignment, {.use_spmd_partitioning = true});
  EXPECT_EQ(strategy.num_logical_devices(), 8);
  const auto images = torch::rand({2, 4, 8, 1}), kernel = torch::rand({3, 1, 3, 3}), labels = torch::rand({2, 3});
  const auto output = strategy.run(
      [&](const torch::Tensor& inputs, const torch::Tensor& weights) {
        return convolved(strategy.experimental_split_to_logical_devices(inputs, {1, 2, 4, 1}), weights);
      },
      images, kernel);
  EXPECT_TRUE(torch::allclose(strategy.local_results(output)[0].cpu(), convolved(images, kernel), 1e-5, 1e-6));

  const auto loss_of = [](const torch::Tensor& wanted, const torch::Tensor& logits) {
    return torch::mse_loss(logits.mean({2, 3}), wanted);
  };
  const auto loss = strategy.run(
      [&](torch::Tensor inputs, torch::Tensor wanted, const torch::Tensor& weights) {
        inputs = strategy.experimental_split_to_logical_devices(inputs, {1, 2, 4, 1});
        auto logits = convolved(inputs, weights);
        wanted = strategy.experimental_replicate_to_logical_devices(wanted);
        logits = strategy.experimental_replicate_to_logical_devices(logits);
        return loss_of(wanted, logits);
      },
      images, labels, kernel);
  EXPECT_NEAR(strategy.local_results(loss)[0].item<float>(), loss_of(labels, convolved(images, kernel)).item<float>(),
              1e-5);
}

TEST_F(TpuPageTest, TheRunnerUsesThisMachine) {
  const runner::TPUStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 8);
  ASSERT_NE(strategy.cluster_resolver(), nullptr);
  EXPECT_FALSE(strategy.cluster_resolver()->cluster_spec());
  const auto sum = strategy.reduce("sum", strategy.run([] { return torch::ones({}); }));
  EXPECT_EQ(sum.item<float>(), 8.0F);
  EXPECT_EQ(runner::TPUStrategy("local").num_replicas_in_sync(), 8);
  EXPECT_EQ(runner::TPUStrategy("grpc://127.0.0.1:8470").num_replicas_in_sync(), 8);
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(runner::TPUStrategy(std::string("grpc://") + name.data()).num_replicas_in_sync(), 8);
}

TEST_F(TpuPageTest, ATpuOfAnotherMachineIsAnError) {
  const auto is_refused = AllOf(HasSubstr("192.0.2.1:8470"), HasSubstr("another one"), HasSubstr("tpu=\"local\""));
  const auto other = std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = kOtherMachine});
  EXPECT_THAT(error_of([&] { runner::TPUStrategy strategy(kOtherMachine); }), is_refused);
  EXPECT_THAT(error_of([&] { TPUStrategy strategy(other); }), is_refused);
  EXPECT_THAT(error_of([&] { initialize_tpu_system(other); }), is_refused);
  EXPECT_THAT(error_of([&] { experimental_connect_to_cluster(other); }), is_refused);
  EXPECT_THROW(experimental_connect_to_cluster(other), c10::NotImplementedError);
  EXPECT_THAT(error_of([&] { runner::TPUStrategy strategy("grpc://127.0.0.1,grpc://192.0.2.1"); }),
              HasSubstr("hosts=2"));
  EXPECT_THROW(experimental_connect_to_cluster(nullptr), c10::ValueError);
}

TEST_F(TpuPageTest, TheEnvironmentNamesTheTpuOfTheRunner) {
  ::setenv("TPU_NAME", kOtherMachine, 1);
  EXPECT_THAT(error_of([] { runner::TPUStrategy strategy; }), HasSubstr("192.0.2.1:8470"));
  ::setenv("TPU_NAME", "local", 1);
  EXPECT_EQ(error_of([] { runner::TPUStrategy strategy; }), "no error");
  ::unsetenv("TPU_NAME");
}

}  // namespace
}  // namespace lockstep::xla::test
