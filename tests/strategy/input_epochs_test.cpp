#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::rest_of;
using tests::StepIds;
using tests::steps_of;

class InputEpochs : public tests::ReplicasTest {};

TEST_F(InputEpochs, ADatasetDistributedAnewForEveryEpochHasOtherOrders) {
  for (const int replicas : {1, 2}) {
    const auto strategy = mirrored(replicas);
    const auto train = data::range(24).shuffle(24);
    std::set<StepIds> orders;
    for (int epoch = 0; epoch < 3; ++epoch) orders.insert(steps_of(strategy.distribute_dataset(train.batch(6))));
    const auto batched = train.batch(6);
    for (int epoch = 0; epoch < 3; ++epoch) orders.insert(steps_of(strategy.distribute_dataset(batched)));
    for (int epoch = 0; epoch < 3; ++epoch) {
      orders.insert(
          steps_of(strategy.distribute_datasets_from_function([&](const InputContext&) { return train.batch(6); })));
    }
    EXPECT_EQ(orders.size(), 9U) << replicas;
    EXPECT_EQ(train.iterator().position().epoch, 9U);
  }
}

TEST_F(InputEpochs, AnEpochIsTheSameHoweverItIsDistributed) {
  const auto make = [] { return data::range(24).shuffle(24, {.seed = 2}); };
  const auto once = mirrored(2).distribute_dataset(make().batch(6));
  const auto train = make();
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(steps_of(mirrored(2).distribute_dataset(train.batch(6))), steps_of(once));
  }
}

TEST_F(InputEpochs, ACacheBelowADistributedDatasetIsHit) {
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep_epochs_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::vector<std::string> files;
  for (int file = 0; file < 2; ++file) {
    files.push_back(folder / std::to_string(file));
    std::ofstream out(files.back());
    for (int line = 0; line < 6; ++line) out << 6 * file + line << "\n";
  }
  std::atomic<int> calls{0};
  const auto parsed = data::text_lines(files).map([&](const std::string& line) {
    ++calls;
    return static_cast<int64_t>(std::stoll(line));
  });
  for (const int replicas : {1, 2}) {
    calls = 0;
    const auto train = parsed.cache().shuffle(12, {.seed = 1}).batch(4);
    std::set<StepIds> orders;
    for (int epoch = 0; epoch < 3; ++epoch) orders.insert(steps_of(mirrored(replicas).distribute_dataset(train)));
    EXPECT_LE(calls, 12) << replicas;
    EXPECT_EQ(orders.size(), 3U);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(InputEpochs, APositionBelongsToItsSeed) {
  const auto shuffled = [] { return data::range(24).shuffle(24).batch(4); };
  torch::manual_seed(1);
  auto iterator = mirrored(2).distribute_dataset(shuffled()).iterator();
  iterator.get_next();
  const auto position = InputPosition::parse(iterator.position().str());
  EXPECT_EQ(position, iterator.position());
  EXPECT_EQ(position.details.seed, 1U);
  const StepIds rest = rest_of(iterator);
  torch::manual_seed(2);
  auto other = mirrored(2).distribute_dataset(shuffled()).iterator();
  EXPECT_THROW(other.restore(position), c10::ValueError);
  torch::manual_seed(1);
  other.restore(position);
  EXPECT_EQ(rest_of(other), rest);
}

/// Batches of the numbers 0 .. 22 without 4 and 13, which throw.
data::Dataset<at::Tensor> failing_batches() {
  return data::range(23)
      .map([](int64_t i) {
        if (i == 4 || i == 13) throw std::runtime_error("bad element");
        return i;
      })
      .batch(3);
}

/// The steps up to the end; an error is a step of its own.
template <class Iterator>
StepIds rest_with_errors(Iterator& iterator) {
  StepIds steps;
  while (steps.size() < 50) {
    try {
      auto step = iterator.get_next_as_optional();
      if (!step) break;
      steps.push_back(tests::ids_of(*step));
    } catch (const std::runtime_error&) {
      steps.push_back({{-1}});
    }
  }
  return steps;
}

TEST_F(InputEpochs, PositionsCountAfterErrorsThatWereSwallowed) {
  for (const int replicas : {2, 3}) {
    for (const int64_t buffer : {0, 1}) {
      const InputOptions options{.per_replica_buffer_size = buffer};
      const auto make = [&] { return mirrored(replicas).distribute_dataset(failing_batches(), options).iterator(); };
      auto whole = make();
      const StepIds all = rest_with_errors(whole);
      for (size_t stop = 0; stop <= all.size(); ++stop) {
        auto iterator = make();
        for (size_t i = 0; i < stop; ++i) {
          try {
            iterator.get_next();
          } catch (const std::runtime_error&) {
          }
        }
        auto restored = make();
        restored.restore(InputPosition::parse(iterator.position().str()));
        const StepIds expected(all.begin() + static_cast<int64_t>(stop), all.end());
        EXPECT_EQ(rest_with_errors(restored), expected) << replicas << " replicas, stopped after " << stop;
      }
    }
  }
}

TEST_F(InputEpochs, PipelinesOfReplicasDrawOtherNumbersInGenerators) {
  const auto dataset_fn = [](const InputContext&) {
    return data::from_generator(
        [] { return [left = 3]() mutable { return left-- > 0 ? std::optional(torch::rand({2})) : std::nullopt; }; });
  };
  const InputOptions per_replica{.replication_mode = InputReplicationMode::PerReplica};
  const auto dataset = mirrored(2).distribute_datasets_from_function(dataset_fn, per_replica);
  int64_t steps = 0;
  for (auto& step : dataset) {
    const std::vector<at::Tensor> parts(step.begin(), step.end());
    EXPECT_FALSE(torch::equal(parts.at(0), parts.at(1)));
    ++steps;
  }
  EXPECT_EQ(steps, 3);
}

}  // namespace
}  // namespace lockstep
