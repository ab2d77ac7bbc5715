#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/data/rewrites/auto_shard.h"
#include "lockstep/data/rewrites/batch_sizes.h"
#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/data/transforms.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/golden/drivers.h"
#include "tests/golden/pipelines.h"
#include "tests/support/any_of_workers.h"

namespace lockstep::golden::drivers::rebatch_and_shard_workers {
namespace {

using data::detail::InputWorker;

constexpr size_t kMaxSteps = 12;
constexpr size_t kMaxPieces = 30;

std::vector<InputWorker> workers_of(const Case& test_case) {
  const int64_t num_workers = test_case.in.at("workers");
  std::vector<InputWorker> workers;
  for (int64_t index = 0; index < num_workers; ++index) {
    workers.push_back({num_workers, index, test_case.in.value("replicas_per_worker", int64_t{1})});
  }
  return workers;
}

/// What each worker answers: a value, or its error.
Json for_each_worker(const Case& test_case, const std::function<Json(const InputWorker&)>& answer) {
  Json answers = Json::array();
  for (const InputWorker& worker : workers_of(test_case)) {
    const Outcome outcome = run_driver([&](const Case&) { return Outcome::of_value(answer(worker)); }, test_case);
    answers.push_back(outcome.as_answer_of_worker());
  }
  return answers;
}

Json batches_and_shape(const data::NodePtr& node) {
  return {{"batches", ids_of_all(*node)}, {"shape", to_json(node->spec().leaves->at(0).shape)}};
}

Json batch_sizes(const Case& test_case) {
  return for_each_worker(test_case, [&](const InputWorker& worker) -> Json {
    return data::detail::batch_sizes_for_worker(test_case.in.at("global"), worker);
  });
}

Json sharded(const Case& test_case) {
  return for_each_worker(test_case, [&](const InputWorker& worker) {
    const auto policy = policy_named(test_case.text("policy"));
    return ids_of_all(*data::detail::auto_shard(pipeline_of(test_case), worker, policy).node);
  });
}

Json streams(const Case& test_case) {
  return for_each_worker(test_case, [&](const InputWorker& worker) {
    Json pieces = ids_of_all(*data::detail::worker_pipeline(pipeline_of(test_case), worker).node);
    while (pieces.size() > kMaxPieces) pieces.erase(pieces.size() - 1);
    return pieces;
  });
}

/// All workers in one process: each thread iterates as one worker does.
Json steps_of_workers(const Case& test_case) {
  const std::vector<InputWorker> workers = workers_of(test_case);
  const auto strategy = detail::default_strategy().shared_from_this();
  tests::AnyOfWorkers agreement(workers.size());
  std::vector<Json> answers(workers.size());
  std::vector<std::exception_ptr> failures(workers.size());
  std::vector<std::thread> threads;
  for (const InputWorker& worker : workers) {
    auto input = std::make_shared<detail::DistributedInput>(detail::DistributedInput{
        .pipelines = {{data::detail::worker_pipeline(pipeline_of(test_case), worker).node,
                       std::vector<c10::Device>(worker.replicas_per_worker, c10::Device(c10::kCPU))}},
        .strategy = strategy,
        .any_worker = [&agreement](uint8_t mine) { return agreement.any(mine); },
        .num_workers = worker.num_workers});
    const auto index = static_cast<size_t>(worker.index);
    threads.emplace_back([&, input, index] {
      try {
        answers[index] = ids_of_steps(input, kMaxSteps);
      } catch (...) {
        failures[index] = std::current_exception();
        agreement.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  Json steps = Json::array();
  for (size_t step = 0; step < answers.at(0).size(); ++step) {
    Json replicas = Json::array();
    for (const Json& answer : answers) {
      for (const Json& ids : answer.at(step)) replicas.push_back(ids);
    }
    steps.push_back(std::move(replicas));
  }
  return steps;
}

Json answer(const Case& test_case) {
  if (test_case.call == "batch_sizes_for_worker") return batch_sizes(test_case);
  if (test_case.call == "auto_shard") return sharded(test_case);
  if (test_case.call == "worker_streams") return streams(test_case);
  if (test_case.call == "worker_steps") return steps_of_workers(test_case);
  const data::NodePtr node = pipeline_of(test_case);
  if (test_case.call == "rebatch") {
    return batches_and_shape(data::detail::make_rebatch(node, test_case.in.at("sizes"),
                                                        {.drop_remainder = test_case.in.at("drop_remainder")}));
  }
  if (test_case.call == "split_batches") {
    return batches_and_shape(data::detail::make_split(node, test_case.in.at("parts")));
  }
  if (test_case.call == "compute_batch_size") return data::detail::global_batch_size(*node).value_or(-1);
  throw HarnessError("[rebatch_and_shard_workers] unknown call: " + test_case.call);
}

}  // namespace

Outcome run(const Case& test_case) { return Outcome::of_value(answer(test_case)); }

}  // namespace lockstep::golden::drivers::rebatch_and_shard_workers
