#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"
#include "tests/support/any_of_workers.h"

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

/// A worker of two. Each reads its own half of the elements where the order is not global.
std::shared_ptr<const detail::DistributedInput> input_of_worker(const data::NodePtr& node, int64_t worker,
                                                                detail::AnyWorker any_worker, bool order_is_global) {
  return std::make_shared<detail::DistributedInput>(
      detail::DistributedInput{.pipelines = {{node, {c10::Device(c10::kCPU)}}},
                               .strategy = detail::default_strategy().shared_from_this(),
                               .any_worker = std::move(any_worker),
                               .num_workers = 2,
                               .worker = worker,
                               .order_is_global = order_is_global,
                               .reads_own_elements = !order_is_global});
}

/// The position of each worker after four calls. Elements of `fails` throw.
std::vector<std::string> positions_of_workers(const std::set<int64_t>& fails, bool order_is_global) {
  tests::AnyOfWorkers workers(2);
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
}

// The records of the step are in the mapped file. The error comes with the next step, as in a loop over the dataset.
TEST_F(InputPositions, BytesOfAStepFromAFileThatWasCutAreAnError) {
  const data::tests::TemporaryFolder folder;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::ofstream(folder / "fixed") << std::string(static_cast<size_t>(40 * page), 'x');
  const auto records =
      data::fixed_length_records(folder / "fixed", {.record_bytes = page, .access = data::FileAccess::Map})
          .shuffle(100, {.seed = 1})
          .batch(4);
  const auto dataset = mirrored(2).distribute_dataset(records);
  auto iterator = dataset.iterator();
  iterator.get_next();
  std::filesystem::resize_file(folder / "fixed", page);
  const auto step = iterator.get_next();
  int64_t sum = 0;
  for (const auto& part : step) {
    for (const data::Bytes& bytes : part) sum += std::count(bytes.view().begin(), bytes.view().end(), 'x');
  }
  EXPECT_LE(sum, page) << "all but one of the pages are zeros";
  EXPECT_THROW(iterator.get_next(), DataError);
  iterator.get_next();  // nothing was read of the step before
}

/// Runs two workers and returns what each says. Without a collective of one of them it would not return.
std::vector<std::string> on_two_workers(const std::function<void(int64_t, const detail::AnyWorker&)>& run) {
  tests::AnyOfWorkers workers(2);
  std::vector<std::string> messages(2, "no error");
  std::vector<std::thread> threads;
  for (int64_t worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&, worker] {
      try {
        run(worker, [&](uint8_t mine) { return workers.any(mine); });
      } catch (const c10::Error& error) {
        messages[static_cast<size_t>(worker)] = error.what_without_backtrace();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST_F(InputPositions, AreRefusedByAllWorkersTogether) {
  const auto positions = positions_of_workers({2}, false);
  const auto messages = on_two_workers([&](int64_t worker, const detail::AnyWorker& any_worker) {
    const auto own = data::range(10).map(
        [](int64_t i) { return i == 2 ? throw std::runtime_error("bad element") : torch::full({1}, i); });
    detail::StepIterator iterator(input_of_worker(data::detail::node_of(own), worker, any_worker, false), 0);
    InputPosition of_first = InputPosition::parse(positions[0]);
    of_first.pipeline.clear();
    data::Epochs epochs;
    iterator.restore(of_first, epochs);
  });
  EXPECT_NE(messages[0].find("another worker"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("taken by worker 0, restored by worker 1"), std::string::npos) << messages[1];
}

// The cache of one worker is filled with another seed between the restore and the first step.
TEST_F(InputPositions, AnotherCacheOfOneWorkerIsRefusedByAllAndAtEveryCall) {
  const auto make = [] { return data::range(6).map([](int64_t) { return torch::rand({1}); }).cache(); };
  torch::manual_seed(1);
  const auto first = input_of_worker(data::detail::node_of(make()), 0, {}, true);
  data::Epochs epochs;
  std::vector<data::Element> elements;
  detail::StepIterator filling(first, 0);
  while (filling.next(elements)) {
  }
  InputPosition position = filling.position(epochs);
  position.steps = 0;
  std::vector<data::Dataset<at::Tensor>> datasets{make(), make()};
  datasets[0].collect();
  const auto messages = on_two_workers([&](int64_t worker, const detail::AnyWorker& any_worker) {
    const auto& dataset = datasets[static_cast<size_t>(worker)];
    detail::StepIterator iterator(input_of_worker(data::detail::node_of(dataset), worker, any_worker, true), 0);
    data::Epochs own_epochs;
    iterator.restore(position, own_epochs);
    if (worker == 1) data::detail::node_of(dataset)->iterator({.seed = 2})->skip(7);
    std::vector<data::Element> own;
    for (int call = 0; call < 3; ++call) EXPECT_THROW(iterator.next(own), c10::ValueError);
    iterator.next(own);
  });
  EXPECT_NE(messages[0].find("cache of another worker"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("position of a cache of seed 1, cache of seed 2"), std::string::npos) << messages[1];
}

TEST_F(InputPositions, AfterErrorsHoldForAllWorkersThatReadTheSameElements) {
  const auto failing = data::range(40).map(
      [](int64_t i) { return i == 9 ? throw std::runtime_error("bad element") : torch::full({1}, i); });
  const auto pipeline = [&](data::AutoShardPolicy policy, int64_t batch, int64_t worker) {
    const auto batches = failing.batch(batch).with_options({.auto_shard_policy = policy});
    return data::detail::worker_pipeline(data::detail::node_of(batches), {2, worker, 1});
  };
  EXPECT_FALSE(pipeline(data::AutoShardPolicy::Off, 4, 0).reads_own_elements);
  EXPECT_FALSE(pipeline(data::AutoShardPolicy::Data, 5, 0).reads_own_elements);
  EXPECT_TRUE(pipeline(data::AutoShardPolicy::Off, 5, 0).reads_own_elements) << "batches of 3 and 2 rows";
  for (const auto policy : {data::AutoShardPolicy::Off, data::AutoShardPolicy::Data}) {
    std::vector<std::string> positions(2);
    std::vector<int> errors(2, 0);
    const auto input = [&](int64_t worker, const detail::AnyWorker& any_worker) {
      const auto own = pipeline(policy, 4, worker);
      return std::make_shared<detail::DistributedInput>(
          detail::DistributedInput{.pipelines = {{own.node, {c10::Device(c10::kCPU)}}},
                                   .strategy = detail::default_strategy().shared_from_this(),
                                   .any_worker = any_worker,
                                   .num_workers = 2,
                                   .worker = worker,
                                   .order_is_global = own.order_is_global,
                                   .reads_own_elements = own.reads_own_elements});
    };
    on_two_workers([&](int64_t worker, const detail::AnyWorker& any_worker) {
      detail::StepIterator iterator(input(worker, any_worker), 0);
      std::vector<data::Element> elements;
      for (int steps = 0; steps < 7;) {
        try {
          EXPECT_TRUE(iterator.next(elements));
          ++steps;
        } catch (const std::runtime_error&) {
          ++errors[static_cast<size_t>(worker)];
        }
      }
      positions[static_cast<size_t>(worker)] = iterator.position(data::Epochs(1)).str();
    });
    EXPECT_EQ(positions[0], positions[1]);
    EXPECT_EQ(errors, (std::vector<int>{1, 1}));
    const auto messages = on_two_workers([&](int64_t worker, const detail::AnyWorker& any_worker) {
      detail::StepIterator iterator(input(worker, any_worker), 0);
      InputPosition of_first = InputPosition::parse(positions[0]);
      of_first.pipeline.clear();
      data::Epochs epochs;
      iterator.restore(of_first, epochs);
    });
    EXPECT_EQ(messages, (std::vector<std::string>{"no error", "no error"}));
  }
}

}  // namespace
}  // namespace lockstep
