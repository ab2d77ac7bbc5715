#include <algorithm>
#include <vector>

#include "tests/golden/differences/topics.h"
#include "tests/golden/drivers.h"

namespace lockstep::golden::rules::rebatch_and_shard {
namespace {

constexpr const char* kTopic = "rebatch_and_shard";
constexpr const char* kWorkers = "rebatch_and_shard_workers";
constexpr size_t kMaxOptionals = 6;

bool is_from_function(const Case& c) { return c.call == "distribute_datasets_from_function" && !c.has_error(); }

/// Whether `next` ended earlier than `get_next_as_optional` did.
bool drops_partial_step(const Case& c) {
  if (!is_from_function(c)) return false;
  const Json& optionals = c.out.at("optionals");
  return optionals.is_array() && optionals.back().is_null() && c.out.at("steps").size() + 1 < optionals.size();
}

bool drops_partial_step_of_dataset(const Case& c) {
  return c.call == "steps" && c.text("strategy") == "CentralStorage" && !c.has_error();
}

/// What MirroredStrategy gives, which is one step more than TensorFlow gave.
Json steps_of_mirrored(const Case& c) {
  Case mirrored = c;
  mirrored.in["strategy"] = "Mirrored";
  const Json steps = drivers::rebatch_and_shard::run(mirrored).value;
  Json before_last = steps;
  before_last.erase(steps.size() - 1);
  if (before_last != c.out) throw HarnessError("more differs than the last step: " + steps.dump());
  return steps;
}

Json with_partial_step(const Case& c) {
  Json answer = c.out;
  answer["steps"] = c.out.at("optionals");
  answer["steps"].erase(answer["steps"].size() - 1);
  return answer;
}

bool has_no_optionals(const Case& c) { return is_from_function(c) && c.out.at("optionals").is_null(); }

Json with_optionals(const Case& c) {
  Json answer = c.out;
  Json optionals = c.out.at("steps");
  optionals.push_back(nullptr);
  while (optionals.size() > kMaxOptionals) optionals.erase(optionals.size() - 1);
  answer["optionals"] = optionals;
  return answer;
}

bool is_error_of(const Json& answer, const char* type) {
  return answer.is_object() && answer.contains("error") && answer["error"].at("type") == type;
}

/// Whether some workers got the error that there are too few files, and others an end.
bool fails_for_some_workers(const Case& c) {
  if (c.has_error() || !c.out.is_array()) return false;
  const auto num_failed = std::count_if(c.out.begin(), c.out.end(),
                                        [](const Json& answer) { return is_error_of(answer, "InvalidArgumentError"); });
  return num_failed > 0 && num_failed < static_cast<int64_t>(c.out.size());
}

Json error_for_all_workers(const Case& c) {
  const Json error = {{"error", {{"type", "InvalidArgumentError"}}}};
  return std::vector<Json>(c.out.size(), error);
}

Json with_empty_step(const Case& c) {
  Json steps = c.out;
  steps.push_back(std::vector<Json>(c.out.at(0).size(), Json::array()));
  return steps;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"partial last step", kTopic, drops_partial_step,
                   "`next` loses the elements of a step that not all replicas have data for, where shapes are static; "
                   "get_next_as_optional and loops in functions keep them",
                   "the step, with batches of no rows for the others, in every kind of loop",
                   "no element is lost, and all ways to read a dataset give the same",
                   expect_value(with_partial_step)});
  table.push_back({"partial last step of a dataset", kTopic, drops_partial_step_of_dataset,
                   "CentralStorageStrategy loses the elements of a step that not all replicas have data for",
                   "the step, with batches of no rows for the others, as under MirroredStrategy",
                   "no element is lost, and every strategy gives the same steps", expect_value(steps_of_mirrored)});
  table.push_back({"scalars that do not fill a step", kTopic,
                   [](const Case& c) { return c.call == "distribute_datasets_from_function_steps"; },
                   "ends, and the elements of the last step are lost", "ValueError that says to batch the dataset",
                   "there is no scalar without a value to give to the other replicas",
                   expect_error("ValueError", "elements must be batches")});
  table.push_back({"optionals under the default strategy", kTopic, has_no_optionals,
                   "the default strategy returns the dataset itself, which has no get_next_as_optional",
                   "as under every other strategy", "a program that works on two devices must work on one",
                   expect_value(with_optionals)});
  table.push_back({"files and other sources", kWorkers,
                   [](const Case& c) { return c.id == "shard/text_files_f2.2+concatenate_range_4/3/AUTO"; },
                   "shards the files, finds a source without files, and shards the half-done graph once more by data: "
                   "elements are lost",
                   "shards by data alone", "a rewrite that fails leaves nothing behind", expect_value([](const Case&) {
                     return Json{{0, 3, 2}, {1, 0, 3}, {2, 1}};
                   })});
  table.push_back(
      {"last step without rows", kWorkers, [](const Case& c) { return c.id == "workers/range_9+batch_2_drop/2x2/OFF"; },
       "where a worker's turn is to cut pieces of no rows behind the last row, such a step is given for "
       "text files and left out for this range",
       "the step is given, with batches of no rows", "one rule for all sources", expect_value(with_empty_step)});
  table.push_back({"fewer files than workers", kWorkers, fails_for_some_workers,
                   "InvalidArgument on the workers that would have got a file; the others end quietly, or wait for "
                   "ever for those that failed",
                   "ValueError on every worker", "a job fails as a whole, with the reason on every worker",
                   expect_value(error_for_all_workers)});
}

}  // namespace lockstep::golden::rules::rebatch_and_shard
