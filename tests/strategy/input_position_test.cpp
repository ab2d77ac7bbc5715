#include <atomic>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"

namespace lockstep {
namespace {

using tests::ids_of;
using tests::joined_steps;
using tests::mirrored;
using tests::rest_of;
using tests::StepIds;
using tests::steps_of;

class InputPositions : public tests::ReplicasTest {};

TEST_F(InputPositions, GoOnWhereTheyWereTaken) {
  const auto shuffled = data::range(50).shuffle(50, {.seed = 7}).batch(8);
  const auto dataset = mirrored(2).distribute_dataset(shuffled);
  steps_of(dataset);  // the test is about the second epoch
  auto iterator = dataset.iterator();
  for (int step = 0; step < 3; ++step) iterator.get_next();
  const InputPosition position = InputPosition::parse(iterator.position().str());
  EXPECT_EQ(position, iterator.position());
  const StepIds rest = rest_of(iterator);
  const StepIds next_epoch = steps_of(dataset);

  const auto again = mirrored(2).distribute_dataset(shuffled);
  auto restored = again.iterator();
  restored.restore(position);
  EXPECT_EQ(rest_of(restored), rest);
  EXPECT_EQ(steps_of(again), next_epoch) << "later epochs follow the restored one";

  for (const int replicas : {1, 3, 4}) {
    auto elsewhere = mirrored(replicas).distribute_dataset(shuffled).iterator();
    elsewhere.restore(position);
    EXPECT_EQ(joined_steps(rest_of(elsewhere)), joined_steps(rest)) << replicas << " replicas";
  }
}

TEST_F(InputPositions, OfAnotherDatasetAreRefused) {
  auto iterator = mirrored(2).distribute_dataset(data::range(8).batch(2)).iterator();
  iterator.get_next();
  auto other = mirrored(2).distribute_dataset(data::range(8).batch(4)).iterator();
  EXPECT_THROW(other.restore(iterator.position()), c10::ValueError);
  InputPosition behind = iterator.position();
  behind.steps = 100;
  EXPECT_THROW(iterator.restore(behind), c10::ValueError);
  const auto dataset_fn = [](const InputContext&) { return data::range(8).batch(2); };
  auto of_function = mirrored(2).distribute_datasets_from_function(dataset_fn).iterator();
  auto of_three = mirrored(3).distribute_datasets_from_function(dataset_fn).iterator();
  EXPECT_THROW(of_three.restore(of_function.position()), c10::ValueError) << "steps have another number of elements";
}

TEST_F(InputPositions, OfRowsThatAreCutAnewAreNotThoseOfBatches) {
  const auto uneven = data::range(5).batch(4).repeat(3).with_options({.auto_shard_policy = data::AutoShardPolicy::Off});
  auto iterator = mirrored(2).distribute_dataset(uneven).iterator();
  for (int step = 0; step < 2; ++step) iterator.get_next();
  const InputPosition position = iterator.position();
  const StepIds rest = rest_of(iterator);
  auto on_three = mirrored(3).distribute_dataset(uneven).iterator();
  on_three.restore(position);
  EXPECT_EQ(joined_steps(rest_of(on_three)), joined_steps(rest));
  auto on_one = mirrored(1).distribute_dataset(uneven).iterator();
  EXPECT_THROW(on_one.restore(position), c10::ValueError) << "one replica gets the batches as they are";
}

TEST_F(InputPositions, SayHowWorkersDivideTheDataset) {
  const auto description = [](data::AutoShardPolicy policy, int64_t num_workers) {
    const auto files = data::from_vector(std::vector<std::string>{"a", "b", "c"});
    const auto lines = data::text_lines(files).batch(4).with_options({.auto_shard_policy = policy});
    return data::detail::worker_pipeline(data::detail::node_of(lines), {num_workers, 0, 2}).cut;
  };
  EXPECT_EQ(description(data::AutoShardPolicy::File, 2), " divided by files");
  EXPECT_EQ(description(data::AutoShardPolicy::Off, 2), " read by every worker");
  EXPECT_EQ(description(data::AutoShardPolicy::Data, 2), "");
  EXPECT_EQ(description(data::AutoShardPolicy::File, 1), "");
}

/// The elements of all workers at each step, from `skipped` steps on.
std::vector<std::set<int64_t>> steps_of_workers(const data::NodePtr& dataset, int64_t num_workers, int64_t skipped) {
  std::vector<std::set<int64_t>> steps;
  for (int64_t index = 0; index < num_workers; ++index) {
    const auto pipeline = data::detail::worker_pipeline(dataset, {num_workers, index, 2});
    EXPECT_TRUE(pipeline.order_is_global);
    detail::StepReader reader({pipeline.node, {c10::Device(c10::kCPU), c10::Device(c10::kCPU)}}, {});
    reader.skip(skipped);
    for (size_t step = 0;; ++step) {
      detail::Step read;
      reader.read(read);
      if (!read.has_data()) break;
      if (steps.size() <= step) steps.emplace_back();
      for (const auto& element : read.elements) {
        if (!element) continue;
        for (const int64_t id : ids_of(data::detail::to_tensor(element->leaves[0]))) steps[step].insert(id);
      }
    }
  }
  return steps;
}

TEST_F(InputPositions, HoldForAnotherNumberOfWorkers) {
  const auto dataset = data::detail::node_of(data::range(41).shuffle(41, {.seed = 3}).batch(6));
  const auto expected = steps_of_workers(dataset, 1, 2);
  EXPECT_EQ(expected.size(), 5u);
  for (const int64_t num_workers : {2, 3}) EXPECT_EQ(steps_of_workers(dataset, num_workers, 2), expected);
}

TEST_F(InputPositions, NameTheSeedOfWhatACacheHolds) {
  const auto make = [] {
    const auto cached = data::range(12).map([](int64_t) { return torch::rand({1}); }).cache();
    return mirrored(2).distribute_dataset(cached.batch(4));
  };
  const auto rest = [](auto& iterator) {
    std::vector<float> values;
    while (const auto step = iterator.get_next_as_optional()) {
      for (const at::Tensor& part : *step) {
        for (int64_t i = 0; i < part.numel(); ++i) values.push_back(part.flatten()[i].template item<float>());
      }
    }
    return values;
  };
  torch::manual_seed(1);
  const auto dataset = make();
  auto whole = dataset.iterator();
  rest(whole);
  torch::manual_seed(2);
  auto iterator = dataset.iterator();
  iterator.get_next();
  const InputPosition position = InputPosition::parse(iterator.position().str());
  EXPECT_EQ(position, iterator.position());
  const std::vector<float> expected = rest(iterator);
  auto other = make().iterator();
  EXPECT_THROW(other.restore(position), c10::ValueError) << "its cache would be filled with seed 2";
  torch::manual_seed(1);
  auto again = make().iterator();
  again.restore(position);
  EXPECT_EQ(rest(again), expected);
}

/// Lets the threads of two workers join the bits that they have set, as a collective does between processes.
class TwoWorkers {
 public:
  uint8_t any(uint8_t mine) {
    bits_ |= mine;
    barrier_.arrive_and_wait();
    const uint8_t result = bits_;
    barrier_.arrive_and_wait();
    bits_ = 0;
    barrier_.arrive_and_wait();
    return result;
  }

 private:
  std::barrier<> barrier_{2};
  std::atomic<uint8_t> bits_ = 0;
};

/// A worker of two. Each reads its own half of the elements where the order is not global.
std::shared_ptr<const detail::DistributedInput> input_of_worker(const data::NodePtr& node, int64_t worker,
                                                                detail::AnyWorker any_worker, bool order_is_global) {
  return std::make_shared<detail::DistributedInput>(
      detail::DistributedInput{.pipelines = {{node, {c10::Device(c10::kCPU)}}},
                               .strategy = detail::default_strategy().shared_from_this(),
                               .any_worker = std::move(any_worker),
                               .num_workers = 2,
                               .worker = worker,
                               .order_is_global = order_is_global});
}

/// The position of each worker after four calls. Elements of `fails` throw.
std::vector<std::string> positions_of_workers(const std::set<int64_t>& fails, bool order_is_global) {
  TwoWorkers workers;
  std::vector<std::string> positions(2);
  std::vector<std::thread> threads;
  for (int64_t worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&, worker] {
      const auto own = data::range(10 * worker, 10 * worker + 10).map([&](int64_t i) {
        return fails.count(i) > 0 ? throw std::runtime_error("bad element") : torch::full({1}, i);
      });
      const auto input = input_of_worker(
          data::detail::node_of(own), worker, [&](uint8_t mine) { return workers.any(mine); }, order_is_global);
      detail::StepIterator iterator(input, 0);
      std::vector<data::Element> elements;
      for (int steps = 0; steps < 4;) {
        try {
          EXPECT_TRUE(iterator.next(elements));
          ++steps;
        } catch (const std::runtime_error&) {
        }
      }
      positions[static_cast<size_t>(worker)] = iterator.position(data::Epochs(1)).str();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return positions;
}

/// What `restore` on `worker` says to a position.
std::string restored_by(int64_t worker, const std::string& position, const std::set<int64_t>& fails,
                        bool order_is_global) {
  const auto own = data::range(10 * worker, 10 * worker + 10).map([&](int64_t i) {
    return fails.count(i) > 0 ? throw std::runtime_error("bad element") : torch::full({1}, i);
  });
  const auto input = input_of_worker(data::detail::node_of(own), worker, {}, order_is_global);
  detail::StepIterator iterator(input, 0);
  data::Epochs epochs;
  InputPosition parsed = InputPosition::parse(position);
  try {
    parsed.pipeline.clear();
    iterator.restore(parsed, epochs);
    EXPECT_EQ(iterator.position(epochs), parsed);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "restored";
}

TEST_F(InputPositions, AfterErrorsHoldForTheirWorkerWhereWorkersReadDifferentElements) {
  for (const std::set<int64_t>& fails : {std::set<int64_t>{2}, std::set<int64_t>{12}}) {
    const auto positions = positions_of_workers(fails, false);
    for (int64_t worker = 0; worker < 2; ++worker) {
      EXPECT_EQ(restored_by(worker, positions.at(static_cast<size_t>(worker)), fails, false), "restored");
      const std::string message = restored_by(1 - worker, positions.at(static_cast<size_t>(worker)), fails, false);
      EXPECT_NE(message.find(c10::str("taken by worker ", worker, ", restored by worker ", 1 - worker)),
                std::string::npos)
          << message;
    }
  }
  const auto sound = positions_of_workers({}, false);
  EXPECT_EQ(sound[0], sound[1]) << "without errors one position is valid for all workers";
  EXPECT_EQ(restored_by(1, sound[0], {}, false), "restored");
  // Workers that share a stream have the same errors.
  const auto shared = positions_of_workers({2, 12}, true);
  EXPECT_EQ(shared[0], shared[1]);
  EXPECT_EQ(restored_by(1, shared[0], {2, 12}, true), "restored");
}

}  // namespace
}  // namespace lockstep
