#include "tools/bench/bench_checkpoint.h"

#include <memory>

namespace lockstep::tools {

void report_checkpoint(const bench::CheckpointOptions& options, ResultStyle style) {
  const bench::CheckpointResult r = bench::bench_checkpoint(options);
  print_result({{"name", "checkpoint"},
                {"width", r.options.width},
                {"batch", r.options.batch},
                {"replicas", r.options.replicas},
                {"optimizer", "adam"},
                {"steps", r.options.steps},
                {"bytes", r.bytes},
                {"seconds_step", r.seconds_step},
                {"seconds_step_saving", r.seconds_step_saving},
                {"seconds_save_call", r.seconds_save_call},
                {"stall_fraction", r.stall_fraction},
                {"seconds_step_snapshot", r.seconds_step_snapshot},
                {"snapshot_fraction", r.snapshot_fraction},
                {"seconds_write", r.seconds_write},
                {"seconds_plain_write", r.seconds_plain_write},
                {"write_fraction", r.write_fraction},
                {"seconds_restore", r.seconds_restore},
                {"seconds_plain_read", r.seconds_plain_read},
                {"restore_fraction", r.restore_fraction}},
               style);
}

void add_bench_checkpoint(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "checkpoint",
      "Saving and restoring an MLP 784-W-W-10 with Adam: steps with saves and with snapshots in memory against steps "
      "without, and files against plain writing with fsync and plain reading of as many bytes that are not in the page "
      "cache");
  auto options = std::make_shared<bench::CheckpointOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("--folder", options->folder, "Write here; default beside other temporary files");
  command->add_option("--width", options->width, "Width W of the hidden layers")->capture_default_str();
  command->add_option("--batch", options->batch, "Examples for each replica")->capture_default_str();
  command->add_option("--replicas", options->replicas, "Replicas")->capture_default_str()->check(CLI::Range(1, 256));
  command->add_option("--steps", options->steps, "Steps from one save to the next")->capture_default_str();
  command->add_option("--repeats", options->repeats, "How often each side is measured")->capture_default_str();
  for (const char* const name : {"--width", "--batch", "--steps", "--repeats"}) {
    command->get_option(name)->check(CLI::PositiveNumber);
  }
  command->add_flag("--json", *json, "Print one JSON object per line");
  command->callback([=] { report_checkpoint(*options, *json ? ResultStyle::Json : ResultStyle::Text); });
}

}  // namespace lockstep::tools
