#include "tools/bench/bench_trainer.h"

#include <memory>

namespace lockstep::tools {

void report_trainer(const bench::StepOptions& options, ResultStyle style) {
  const bench::TrainerResult r = bench::bench_trainer(options);
  print_result({{"name", "trainer"},
                {"strategy", r.options.strategy},
                {"width", r.options.width},
                {"batch", r.options.batch},
                {"replicas", r.options.replicas},
                {"optimizer", r.options.optimizer},
                {"steps", r.steps},
                {"seconds_by_hand", r.seconds_by_hand},
                {"seconds_trainer", r.seconds_trainer},
                {"ratio", r.ratio},
                {"seconds_with_bar", r.seconds_with_bar},
                {"ratio_with_bar", r.ratio_with_bar},
                {"cpu_ratio_with_bar", r.cpu_ratio_with_bar}},
               style);
}

void add_bench_trainer(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "trainer",
      "A step of Trainer with loss and accuracy, against the loop by hand that reports the same numbers, and with "
      "the bar of progress");
  auto options = std::make_shared<bench::StepOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--width", options->width, "Width W of the hidden layers of an MLP 784-W-W-10")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options->batch, "Examples for each replica")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--strategy", options->strategy, "mirrored or central")
      ->capture_default_str()
      ->check(CLI::IsMember({"mirrored", "central"}));
  command->add_option("--replicas", options->replicas, "Replicas")->capture_default_str()->check(CLI::Range(1, 256));
  command->add_option("--optimizer", options->optimizer, "sgd, momentum, adam or adagrad")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "momentum", "adam", "adagrad"}));
  command->add_option("--seconds", options->seconds, "Time for the measurement")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] { report_trainer(*options, *json ? ResultStyle::Json : ResultStyle::Text); });
}

}  // namespace lockstep::tools
