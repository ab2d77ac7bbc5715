// Arguments and new tensors of a replica are on its device: docs/tpu.md, Strategy::run, DeviceScope.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "tests/xla/eight_devices.h"

namespace lockstep::xla::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class XlaPlacementTest : public EightDevicesTest {
 protected:
  void TearDown() override { set_placement(true); }
};

/// Tensors of functions that make them from sizes and numbers.
std::vector<torch::Tensor> made_here() {
  return {torch::zeros({2}),
          torch::ones({2}),
          torch::full({2}, 3),
          torch::rand({2}),
          torch::randn({2}),
          torch::empty({2}),
          torch::randint(5, {2}),
          torch::arange(3),
          torch::arange(1, 3),
          torch::eye(2),
          torch::linspace(0, 1, 3),
          torch::randperm(4),
          torch::zeros({2, 3}, torch::kLong)};
}

std::vector<torch::Device> devices_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Device> devices;
  for (const auto& tensor : tensors) devices.push_back(tensor.device());
  return devices;
}

TEST_F(XlaPlacementTest, ArgumentsMoveToTheReplicasDevice) {
  const TPUStrategy strategy = replicas(2);
  struct Batch {
    torch::Tensor x;
    std::vector<torch::Tensor> rest;
    int number;
  };
  const Batch batch{torch::ones({2}), {torch::zeros({1}), torch::Tensor()}, 3};
  const PerReplica<torch::Tensor> parts({torch::ones({1}), torch::ones({1}) * 2});
  const auto devices = strategy.local_results(strategy.run(
      [](const torch::Tensor& plain, const Batch& nest, const torch::Tensor& part, const torch::Tensor& meta) {
        EXPECT_FALSE(nest.rest[1].defined());
        EXPECT_EQ(nest.number, 3);
        EXPECT_TRUE(meta.is_meta());
        return c10::str(plain.device(), nest.x.device(), nest.rest[0].device(), part.device());
      },
      torch::ones({2}), batch, parts, torch::empty({2}, torch::kMeta)));
  for (int replica = 0; replica < 2; ++replica) {
    const std::string name = c10::str(device_of_replica(strategy, replica));
    EXPECT_EQ(devices[replica], name + name + name + name);
  }
  EXPECT_TRUE(batch.x.is_cpu()) << "the caller's tensor stays";
}

TEST_F(XlaPlacementTest, GradientsReachTheCallersTensor) {
  const TPUStrategy strategy = replicas(1);
  const auto x = torch::ones({3}).requires_grad_();
  strategy.run([](const torch::Tensor& own) { (own * own).sum().backward(); }, x);
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 2.0)));
}

TEST_F(XlaPlacementTest, FactoriesUseTheReplicasDevice) {
  const TPUStrategy strategy = replicas(2);
  const Counters before = counters();
  const auto sums = strategy.local_results(strategy.run([&] {
    const int replica = get_replica_context().replica_id_in_sync_group();
    EXPECT_THAT(devices_of(made_here()), Each(device_of_replica(strategy, replica)));
    return torch::ones({4}).sum() + torch::zeros({}) + torch::rand({2}).floor().sum();
  }));
  EXPECT_EQ(sums[1].item<float>(), 4.0F);
  EXPECT_EQ(counters().cuts, before.cuts);
}

TEST_F(XlaPlacementTest, WhatNamesItsDeviceStaysThere) {
  const TPUStrategy strategy = replicas(2);
  strategy.run([] {
    const std::vector<float> values{1, 2};
    EXPECT_TRUE(torch::zeros({2}, torch::kCPU).is_cpu());
    EXPECT_TRUE(torch::tensor({1.0, 2.0}).is_cpu());
    EXPECT_TRUE(torch::equal(at::tensor(values), torch::tensor({1.0F, 2.0F}))) << "LibTorch writes to its memory";
    EXPECT_TRUE(torch::from_blob(const_cast<float*>(values.data()), {2}).is_cpu());
  });
}

TEST_F(XlaPlacementTest, TheSwitchTurnsItOff) {
  const TPUStrategy strategy = replicas(2);
  set_placement(false);
  strategy.run(
      [](const torch::Tensor& x) {
        EXPECT_TRUE(x.is_cpu());
        EXPECT_THAT(devices_of(made_here()), Each(torch::Device(torch::kCPU)));
      },
      torch::ones({2}));
  const DeviceScope scope("TPU:1");
  EXPECT_TRUE(torch::zeros({2}).is_cpu());
}

TEST_F(XlaPlacementTest, MergeFunctionsBelongToNoReplica) {
  const TPUStrategy strategy = replicas(2);
  strategy.run([] {
    get_replica_context().merge_call([](const Strategy&) { EXPECT_TRUE(torch::zeros({2}).is_cpu()); });
    EXPECT_FALSE(torch::zeros({2}).is_cpu());
  });
}

TEST_F(XlaPlacementTest, ReplicasOnCpusGetCpuTensors) {
  set_logical_devices("CPU", 2);
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  reset_logical_devices();
  const DeviceScope around("TPU:0");
  strategy.run(
      [](const torch::Tensor& x) {
        EXPECT_TRUE(x.is_cpu());
        EXPECT_TRUE(torch::zeros({2}).is_cpu()) << "a replica hides the scopes around it";
      },
      torch::ones({2}));
  EXPECT_FALSE(torch::zeros({2}).is_cpu());
}

TEST_F(XlaPlacementTest, DeviceScopesPlaceNewTensors) {
  const c10::Device second = find_logical_device("/job:localhost/replica:0/task:0/device:TPU:1").torch_device;
  const DeviceScope scope("TPU:1");
  EXPECT_THAT(devices_of(made_here()), Each(second));
  {
    const DeviceScope inner("CPU:0");
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
    const DeviceScope hidden(std::nullopt);
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
  }
  const DeviceScope same("/task:0");
  EXPECT_EQ(torch::zeros({2}).device(), second);
}

TEST_F(XlaPlacementTest, ModulesAreWhollyOnTheDeviceOfTheScope) {
  const DeviceScope scope("TPU:1");
  const torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3), torch::nn::Embedding(4, 2));
  std::vector<torch::Tensor> all = model->parameters();
  for (const auto& buffer : model->buffers()) all.push_back(buffer);
  std::erase_if(all, [](const torch::Tensor& tensor) { return tensor.dim() == 0; });  // made by torch::tensor
  EXPECT_THAT(devices_of(all), Each(all[0].device()));
  EXPECT_FALSE(all[0].is_cpu());
}

}  // namespace
}  // namespace lockstep::xla::test
