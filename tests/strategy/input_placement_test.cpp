#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

class InputPlacement : public ::testing::Test {
 protected:
  ~InputPlacement() override { reset_logical_devices(); }

  std::shared_ptr<const detail::DistributedInput> distribute(const InputOptions& options) const {
    return detail::distribute_from_function(
        detail::Access::impl(strategy),
        [](const InputContext&) { return data::detail::node_of(data::range(4).batch(2)); }, options);
  }

  const MirroredStrategy strategy = [] {
    set_logical_devices("CPU", 2);
    return MirroredStrategy({"CPU:0", "CPU:1"});
  }();
  const std::string first = "/job:localhost/replica:0/task:0/device:CPU:0";
  const std::string second = "/job:localhost/replica:0/task:0/device:CPU:1";
  const InputOptions placed{
      .fetch_to_device = false, .replication_mode = InputReplicationMode::PerReplica, .place_dataset_on_device = true};
};

TEST_F(InputPlacement, BatchesAreOnTheirReplicasOrOnTheHost) {
  EXPECT_EQ(detail::batch_devices(*distribute({})), (std::vector<std::string>{first, second}));
  EXPECT_EQ(detail::batch_devices(*distribute({.fetch_to_device = false})), (std::vector<std::string>{first, first}));
  EXPECT_EQ(detail::batch_devices(*distribute(placed)), (std::vector<std::string>{first, second}));
}

TEST_F(InputPlacement, FunctionsOfAPlacedDatasetRunOnItsDevice) {
  std::vector<std::string> made_on;
  std::vector<std::string> mapped_on;
  const auto dataset = strategy.distribute_datasets_from_function(
      [&](const InputContext&) {
        made_on.push_back(current_device());
        return data::range(2)
            .map([&](int64_t x) {
              mapped_on.push_back(current_device());
              return x;
            })
            .batch(2);
      },
      placed);
  EXPECT_EQ(made_on, (std::vector<std::string>{first, second}));
  mapped_on.clear();
  auto iterator = dataset.iterator();
  iterator.get_next();
  EXPECT_EQ(std::set<std::string>(mapped_on.begin(), mapped_on.end()), (std::set<std::string>{first, second}));
  EXPECT_EQ(current_device(), "") << "the scope ends with the call";
}

// A device that is not the CPU shows whether elements are copied; LibTorch's meta device needs no hardware.
TEST_F(InputPlacement, ElementsOfAPlacedDatasetStayOnTheirDevice) {
  const at::Tensor on_device = at::empty({2}, at::kMeta);
  auto input = std::make_shared<detail::DistributedInput>(
      detail::DistributedInput{.pipelines = {{.node = data::detail::node_of(data::from_tensors(on_device)),
                                              .devices = {c10::Device(c10::kMeta)},
                                              .names = {first},
                                              .is_placed = true}},
                               .options = placed,
                               .strategy = detail::Access::impl(strategy).shared_from_this()});
  detail::StepIterator iterator(input, 0);
  std::vector<data::Element> elements;
  ASSERT_TRUE(iterator.next(elements));
  EXPECT_TRUE(data::detail::to_tensor(elements.at(0).leaves.at(0)).is_same(on_device));
}

}  // namespace
}  // namespace lockstep
