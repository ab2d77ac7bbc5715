#include "tools/bench/bench_precision.h"

#include <memory>

#include "bench/precision.h"
#include "tools/print_result.h"

namespace lockstep::tools {
namespace {

void report_precision(const bench::PrecisionOptions& options, bool json) {
  const bench::PrecisionResult r = bench::bench_precision(options);
  print_result({{"name", "precision"},
                {"model", r.options.model},
                {"device", r.options.device},
                {"compute", "bfloat16"},
                {"batch", r.options.batch},
                {"seconds_autocast", r.seconds_autocast},
                {"seconds_policy", r.seconds_policy},
                {"seconds_float", r.seconds_float},
                {"ratio", r.ratio},
                {"speedup", r.speedup},
                {"steps", r.options.steps},
                {"last_loss_float", r.last_loss_float},
                {"last_loss_bfloat16", r.last_loss_bfloat16},
                {"largest_difference", r.largest_difference}},
               json ? ResultStyle::Json : ResultStyle::Text);
}

}  // namespace

void add_bench_precision(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "precision",
      "A step in bfloat16 by a Policy, against LibTorch alone with its own autocast, and its losses against float32");
  auto options = std::make_shared<bench::PrecisionOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--model", options->model, "resnet18, gpt or lstm")
      ->capture_default_str()
      ->check(CLI::IsMember({"resnet18", "gpt", "lstm"}));
  command->add_option("--device", options->device, "CPU:0 or GPU:0; default the GPU if there is one")
      ->check(CLI::IsMember({"CPU:0", "GPU:0"}));
  command->add_option("--batch", options->batch, "Examples of a step; default by the model")
      ->check(CLI::PositiveNumber);
  command->add_option("--steps", options->steps, "Steps whose losses are compared")
      ->capture_default_str()
      ->check(CLI::Range(4, 1'000'000));
  command->add_option("--seconds", options->seconds, "Time for the steps that are timed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] { report_precision(*options, *json); });
}

}  // namespace lockstep::tools
