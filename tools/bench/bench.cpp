#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/all_reduce.h"
#include "bench/embedding_step.h"
#include "bench/empty_run.h"
#include "bench/input.h"
#include "bench/input_gpu.h"
#include "bench/model_step.h"
#include "bench/step.h"
#include "bench/trace_step.h"
#include "lockstep/strategy/tpu/tpu_system.h"
#include "tools/bench/bench_checkpoint.h"
#include "tools/bench/bench_gpu.h"
#include "tools/bench/bench_precision.h"
#include "tools/bench/bench_trainer.h"
#include "tools/bench/bench_workers.h"
#include "tools/bench/bench_xla.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

ResultStyle style(bool json) { return json ? ResultStyle::Json : ResultStyle::Text; }

Json to_json(const bench::AllReduceResult& r) {
  return {{"name", r.name},
          {"bytes", r.bytes},
          {"replicas", r.replicas},
          {"seconds", r.seconds},
          {"algbw", r.algbw},
          {"memory_bandwidth", r.memory_bandwidth},
          {"fraction_of_limit", r.fraction_of_limit}};
}

Json to_json(const bench::InputResult& r) {
  Json json{{"name", r.name}, {"records_per_second", r.records_per_second}, {"bytes_per_second", r.bytes_per_second}};
  if (r.fraction_of_limit > 0) json["fraction_of_limit"] = r.fraction_of_limit;
  return json;
}

Json to_json(const bench::GpuInputResult& r) {
  Json json{{"name", r.name},
            {"batch_bytes", r.batch_bytes},
            {"seconds_per_batch", r.seconds_per_batch},
            {"bytes_per_second", r.bytes_per_second}};
  if (r.fraction_of_bus > 0) json["fraction_of_bus"] = r.fraction_of_bus;
  return json;
}

Json to_json(const bench::StepInputResult& r) {
  return {{"name", r.name},
          {"width", r.options.width},
          {"batch", r.options.batch},
          {"replicas", r.options.replicas},
          {"seconds_fixed", r.seconds_fixed},
          {"seconds_fed", r.seconds_fed},
          {"share_of_step", r.share_of_step},
          {"records_per_second", r.records_per_second},
          {"bytes_per_second", r.bytes_per_second}};
}

Json to_json(const bench::EmbeddingResult& r) {
  return {{"name", r.name},
          {"strategy", "central"},
          {"rows", r.options.rows},
          {"columns", r.options.columns},
          {"lookups", r.options.lookups},
          {"replicas", r.options.replicas},
          {"optimizer", r.options.optimizer},
          {"seconds", r.seconds},
          {"seconds_plain", r.seconds_plain},
          {"ratio", r.ratio},
          {"ratio_same_memory", r.ratio_same_memory},
          {"bytes_moved", r.bytes_moved},
          {"bytes_table", r.bytes_table},
          {"rows_small_table", r.rows_small_table},
          {"seconds_small_table", r.seconds_small_table},
          {"ratio_small_table", r.ratio_small_table}};
}

Json to_json(const bench::ModelStepResult& r) {
  return {{"name", r.name},
          {"strategy", r.options.strategy},
          {"batch", r.options.batch},
          {"replicas", r.options.replicas},
          {"optimizer", r.options.optimizer},
          {"threads_per_replica", r.threads_per_replica},
          {"parameters", r.parameters},
          {"seconds_n", r.seconds_n},
          {"seconds_alone", r.seconds_alone},
          {"fraction_of_alone", r.fraction_of_alone}};
}

Json to_json(const bench::TraceStepResult& r) {
  return {{"name", r.name},
          {"width", r.options.width},
          {"batch", r.options.batch},
          {"replicas", r.options.replicas},
          {"seconds_off", r.seconds_off},
          {"seconds_counting", r.seconds_counting},
          {"seconds_tracing", r.seconds_tracing},
          {"share_counting", r.share_counting},
          {"share_tracing", r.share_tracing},
          {"seconds_span_off", r.seconds_span_off},
          {"seconds_span_tracing", r.seconds_span_tracing}};
}

void report_input(const bench::InputOptions& options, bool json) {
  for (const auto& result : bench::bench_input(options)) print_result(to_json(result), style(json));
  print_result(to_json(bench::bench_step_input({})), style(json));
}

void add_input(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "input",
      "Reading, parsing, shuffling, batching and mapping, against reading and checksumming the same bytes; with "
      "--device batches that come to a GPU, against the bus");
  auto options = std::make_shared<bench::InputOptions>();
  auto gpu = std::make_shared<bench::GpuInputOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--folder", options->folder,
                      "Keep the record files here, for bench/peers/tfdata_input.py to read the same ones");
  command->add_option("--small-records", options->small_records, "Records of 784 bytes")->capture_default_str();
  command->add_option("--large-records", options->large_records, "Records of 110,000 bytes")->capture_default_str();
  command->add_option("--repeats", options->repeats, "How often each pipeline is read")->capture_default_str();
  auto* device = command->add_option("--device", gpu->device, "GPU:0: measure the way to this GPU instead");
  command->add_option("--batch-bytes", gpu->batch_bytes, "Size of a batch; with --device")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->needs(device);
  command->add_option("--seconds", gpu->seconds, "Time for each measurement; with --device")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->needs(device);
  for (const char* const name : {"--folder", "--small-records", "--large-records", "--repeats"}) {
    command->get_option(name)->excludes(device);
  }
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] {
    if (device->count() == 0) return report_input(*options, *json);
    for (const auto& result : bench::bench_gpu_input(*gpu)) print_result(to_json(result), style(*json));
  });
}

/// The option that measures between workers; 0 where it is not given.
std::shared_ptr<int> add_workers(CLI::App& command) {
  auto workers = std::make_shared<int>(0);
  command.add_option("--workers", *workers, "Workers on this machine, one replica each, instead of threads")
      ->check(CLI::Range(2, 256));
  return workers;
}

std::vector<bench::StepOptions> step_cases(const bench::StepOptions& options, const std::vector<int64_t>& widths,
                                           const std::vector<int64_t>& batches) {
  std::vector<bench::StepOptions> cases;
  for (const int64_t width : widths) {
    for (const int64_t batch : batches) {
      cases.push_back(options);
      cases.back().width = width;
      cases.back().batch = batch;
    }
  }
  return cases;
}

void add_all_reduce(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "all_reduce", "Sum a tensor over replicas, against the memory's bandwidth; over workers, against Gloo and MPI");
  auto options = std::make_shared<bench::AllReduceOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--replicas", options->replicas, "Replicas, one thread each")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  const auto workers = add_workers(*command);
  command->add_option("--bytes", options->bytes, "Message sizes; default 4 KiB to 256 MiB, between workers to 64 MiB")
      ->check(CLI::PositiveNumber);
  command->add_option("--seconds", options->seconds_per_size, "Time for each size")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] {
    if (*workers > 0) return report_all_reduce_on_workers(*workers, *options, style(*json));
    for (const auto& result : bench::bench_all_reduce(*options)) print_result(to_json(result), style(*json));
  });
}

void add_run(CLI::App& bench) {
  auto* command = bench.add_subcommand("run", "The overhead of a step: an empty `run`");
  auto replicas = std::make_shared<int>(2);
  auto json = std::make_shared<bool>(false);
  command->add_option("--replicas", *replicas, "Replicas, one thread each")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] {
    const auto result = bench::bench_empty_run(*replicas);
    print_result({{"name", result.name}, {"replicas", result.replicas}, {"seconds", result.seconds}}, style(*json));
  });
}

/// The options of `bench step`.
struct StepCommand {
  bench::StepOptions step;
  bench::EmbeddingOptions embedding;
  bool json = false;
};

void report_steps(const StepCommand& told, const std::vector<bench::StepOptions>& cases) {
  for (const auto& each : cases) print_result(step_json(bench::bench_step(each)), style(told.json));
  if (told.step.strategy != "central") return;
  bench::EmbeddingOptions embedding = told.embedding;
  embedding.replicas = told.step.replicas;
  embedding.optimizer = told.step.optimizer;
  embedding.seconds = told.step.seconds;
  print_result(to_json(bench::bench_embedding_step(embedding)), style(told.json));
}

void add_embedding_options(CLI::App& command, bench::EmbeddingOptions& embedding) {
  command.add_option("--rows", embedding.rows, "central: rows of the table")->capture_default_str();
  command.add_option("--columns", embedding.columns, "central: columns of the table")->capture_default_str();
  command.add_option("--lookups", embedding.lookups, "central: rows that each replica looks up in a step")
      ->capture_default_str();
  for (const char* const name : {"--rows", "--columns", "--lookups"}) {
    command.get_option(name)->check(CLI::PositiveNumber);
  }
}

void add_step(CLI::App& bench) {
  auto* command = bench.add_subcommand("step",
                                       "A training step of an MLP 784-W-W-10, against one replica and plain LibTorch; "
                                       "under central storage also of a large table, by rows; with --model of a "
                                       "larger model, against threads that never meet");
  auto told = std::make_shared<StepCommand>();
  bench::StepOptions& options = told->step;
  auto* width = command->add_option("--width", options.width, "Width W of the hidden layers; default 512 and 2048");
  auto* batch = command->add_option("--batch", options.batch, "Examples for each replica; default 32 and 256");
  width->check(CLI::PositiveNumber);
  batch->check(CLI::PositiveNumber);
  const auto workers = add_workers(*command);
  auto model = std::make_shared<std::string>();
  command
      ->add_option("--model", *model,
                   "resnet18, gpt or lstm instead of the MLP: all replicas against as many threads with a model and an "
                   "optimizer each that exchange nothing")
      ->check(CLI::IsMember({"resnet18", "gpt", "lstm"}))
      ->excludes("--workers")
      ->excludes("--width");
  command->add_option("--strategy", options.strategy, "mirrored, or central alternating with mirrored")
      ->capture_default_str()
      ->check(CLI::IsMember({"mirrored", "central"}))
      ->excludes("--workers");
  command->add_option("--replicas", options.replicas, "Replicas")->capture_default_str()->check(CLI::Range(1, 256));
  command->add_option("--optimizer", options.optimizer, "sgd, momentum, adam or adagrad")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "momentum", "adam", "adagrad"}));
  command->add_option("--seconds", options.seconds, "Time for each measurement")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  add_embedding_options(*command, told->embedding);
  command->add_flag("--json", told->json, "Print one JSON object per line");
  command->callback([=] {
    if (!model->empty()) {
      bench::StepOptions chosen = told->step;
      if (batch->count() == 0) chosen.batch = 0;
      return print_result(to_json(bench::bench_model_step(*model, chosen)), style(told->json));
    }
    const auto widths = width->count() > 0 ? std::vector{told->step.width} : std::vector<int64_t>{512, 2048};
    const auto batches = batch->count() > 0 ? std::vector{told->step.batch} : std::vector<int64_t>{32, 256};
    const auto cases = step_cases(told->step, widths, batches);
    if (*workers > 0) return report_step_on_workers(*workers, cases, style(told->json));
    report_steps(*told, cases);
  });
}

void add_compression(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "compression", "A training step of an MLP 784-W-W-10 on workers, with each kind of compression of gradients");
  auto options = std::make_shared<bench::StepOptions>();
  options->width = 1024;
  auto workers = std::make_shared<int>(2);
  auto json = std::make_shared<bool>(false);
  command->add_option("--workers", *workers, "Workers on this machine, one replica each")
      ->capture_default_str()
      ->check(CLI::Range(2, 256));
  command->add_option("--width", options->width, "Width W of the hidden layers")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options->batch, "Examples for each replica")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seconds", options->seconds, "Time for all measurements")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] { report_compression_on_workers(*workers, *options, style(*json)); });
}

void add_bench_trace(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "trace", "A training step of an MLP 784-W-W-10 that is traced, or whose phases are counted, against neither");
  auto options = std::make_shared<bench::StepOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--width", options->width, "Width W of the hidden layers")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options->batch, "Examples for each replica")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--replicas", options->replicas, "Replicas")->capture_default_str()->check(CLI::Range(1, 256));
  command->add_option("--seconds", options->seconds, "Time for all measurements")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] { print_result(to_json(bench::bench_trace_step(*options)), style(*json)); });
}

void add_all(CLI::App& bench) {
  auto* command = bench.add_subcommand("all", "All of them, with their defaults");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] {
    if (has_tpu_plugin()) report_xla(style(*json));  // First: it starts processes, and the others start threads.
    for (const auto& result : bench::bench_all_reduce({})) print_result(to_json(result), style(*json));
    const auto run = bench::bench_empty_run(2);
    print_result({{"name", run.name}, {"replicas", run.replicas}, {"seconds", run.seconds}}, style(*json));
    for (const auto& each : step_cases({}, {512, 2048}, {32, 256})) {
      print_result(step_json(bench::bench_step(each)), style(*json));
    }
    report_input({}, *json);
    report_checkpoint({}, style(*json));
    report_trainer({}, style(*json));
  });
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Measure against the limits of this machine");
  bench->require_subcommand(1);
  add_all_reduce(*bench);
  add_run(*bench);
  add_step(*bench);
  add_compression(*bench);
  add_input(*bench);
  add_bench_checkpoint(*bench);
  add_bench_trace(*bench);
  add_bench_trainer(*bench);
  add_bench_precision(*bench);
  add_bench_gpu(*bench);
  add_xla(*bench);
  add_all(*bench);
}

}  // namespace lockstep::tools
