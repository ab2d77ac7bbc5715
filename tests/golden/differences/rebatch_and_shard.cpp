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

bool reads_files(const Json& step) {
  return is_one_of(step.at(0).get<std::string>(), {"text_files", "record_files", "interleave", "flat_map"});
}

/// Whether files are concatenated with a source that has none.
bool has_files_and_others(const Case& c) {
  const Json pipeline = c.field("pipeline");
  return c.call == "auto_shard" && c.text("policy") == "AUTO" &&
         std::any_of(pipeline.begin(), pipeline.end(), reads_files) &&
         std::any_of(pipeline.begin(), pipeline.end(), [](const Json& step) { return step[0] == "concatenate_range"; });
}

Json sharded_by_data(const Case& c) {
  Case by_data = c;
  by_data.in["policy"] = "DATA";
  return drivers::rebatch_and_shard_workers::run(by_data).value;
}

bool is_of_several_workers(const Case& c) {
  return c.call == "worker_steps" && !c.has_error() && c.out.at(0).is_array();
}

Json with_empty_step(const Case& c) {
  Json steps = c.out;
  steps.push_back(std::vector<Json>(c.out.at(0).size(), Json::array()));
  return steps;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"partial last step", kTopic, drops_partial_step,
                   "with static shapes, `next` loses the elements of a step for which not all replicas have data; "
                   "get_next_as_optional and loops in functions return them",
                   "the step, with empty batches for the other replicas, in every kind of loop",
                   "no element is lost, and all ways to read a dataset give the same elements",
                   expect_value(with_partial_step)});
  table.push_back({"partial last step of a dataset", kTopic, drops_partial_step_of_dataset,
                   "CentralStorageStrategy loses the elements of a step for which not all replicas have data",
                   "the step, with empty batches for the other replicas, as under MirroredStrategy",
                   "no element is lost, and every strategy gives the same steps", expect_value(steps_of_mirrored)});
  table.push_back({"scalars that do not fill a step", kTopic,
                   [](const Case& c) { return c.call == "distribute_datasets_from_function_steps"; },
                   "ends and loses the elements of the last step", "ValueError that says to batch the dataset",
                   "the other replicas cannot get an empty scalar",
                   expect_error("ValueError", "elements must be batches")});
  table.push_back({"optionals under the default strategy", kTopic, has_no_optionals,
                   "the default strategy returns the dataset itself, which has no get_next_as_optional",
                   "as under every other strategy", "a program that works on two devices must work on one",
                   expect_value(with_optionals)});
  table.push_back({"placement of one dataset", kTopic,
                   [](const Case& c) {
                     return c.call == "input_options" && c.text("api") == "dataset" &&
                            c.in.at("place_dataset_on_device") && c.text("mode") == "PER_WORKER";
                   },
                   "distribute_dataset accepts place_dataset_on_device and does nothing",
                   "ValueError: it needs distribute_datasets_from_function with a dataset for each replica",
                   "an option that has no effect is an error",
                   expect_error("ValueError", "place_dataset_on_device=true needs")});
  table.push_back({"files and other sources", kWorkers, has_files_and_others,
                   "shards the files, finds a source without files, and shards the partly changed graph again by data: "
                   "elements are lost",
                   "shards by data only", "a failed rewrite has no effect", expect_value(sharded_by_data)});
  table.push_back(
      {"last step without rows", kWorkers, is_of_several_workers,
       "if a worker's last step has no rows, the step is returned for text files and omitted for this range",
       "the step is returned, with empty batches", "one rule for all sources", expect_value(with_empty_step)});
  table.push_back({"fewer files than workers", kWorkers, fails_for_some_workers,
                   "InvalidArgument on the workers that would have got a file; the others end without an error, or "
                   "wait forever for the failed ones",
                   "ValueError on every worker", "a job fails as a whole, with the reason on every worker",
                   expect_value(error_for_all_workers)});
}

}  // namespace lockstep::golden::rules::rebatch_and_shard
