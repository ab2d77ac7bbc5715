#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lockstep/base/progress/progress.h"
#include "tools/checkpoint/checkpoint_convert.h"
#include "tools/checkpoint/checkpoint_diff.h"
#include "tools/checkpoint/checkpoint_inspect.h"
#include "tools/checkpoint/checkpoint_source.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

constexpr const char* kSourceText =
    "Folders of checkpoints, or files of weights (safetensors, torch.save, TorchScript); a folder with several "
    "checkpoints means its latest";

void add_checkpoint_inspect(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand(
      "inspect", "Show what is in checkpoints: step, versions, parts; names, shapes, dtypes and sizes; values");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, kSourceText)->required();
  command->add_flag("--json", *json, "Print one JSON object per checkpoint");
  command->callback([=] {
    for (const std::string& path : *paths) {
      const CheckpointSource source = open_source(path);
      if (*json) {
        print_result(inspect_source(source), ResultStyle::Json);
      } else {
        print_source(source, std::cout);
      }
    }
  });
}

void add_checkpoint_verify(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand(
      "verify", "Read every byte of checkpoints and compare the checksums; exit status 1 where one is damaged");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, "Folders of checkpoints; of a folder with several all are verified")
      ->required();
  command->add_flag("--json", *json, "Print one JSON object per checkpoint");
  auto quiet = std::make_shared<bool>(false);
  command->add_flag("--quiet", *quiet, "Show no progress on standard error");
  command->callback([=] {
    const progress::Display display(!*quiet);
    bool sound = true;
    for (const std::string& path : *paths) {
      for (const std::string& folder : checkpoints_at(path)) {
        const Json result = verify_folder(folder);
        sound = sound && result["sound"];
        print_result(result, *json ? ResultStyle::Json : ResultStyle::Text);
      }
    }
    if (!sound) throw CLI::RuntimeError(1);
  });
}

void add_checkpoint_diff(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand(
      "diff",
      "Show where two checkpoints differ: names, shapes, largest absolute difference; exit status 1 where they do");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto tolerance = std::make_shared<double>(0);
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, kSourceText)->required()->expected(2);
  command->add_option("--tolerance", *tolerance, "Numbers that differ by no more are equal")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", *json, "Print one JSON object per difference");
  auto quiet = std::make_shared<bool>(false);
  command->add_flag("--quiet", *quiet, "Show no progress on standard error");
  command->callback([=] {
    const progress::Display display(!*quiet);
    const CheckpointSource first = open_source((*paths)[0]);
    const CheckpointSource second = open_source((*paths)[1]);
    const std::vector<Json> differences = compare(first.state, second.state, *tolerance);
    for (const Json& difference : differences) print_result(difference, *json ? ResultStyle::Json : ResultStyle::Text);
    if (!differences.empty()) throw CLI::RuntimeError(1);
    if (!*json) std::cout << first.path << " and " << second.path << " have equal values\n";
  });
}

void add_checkpoint_convert(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand(
      "convert", "Convert a checkpoint to one safetensors file, or a file of weights to a checkpoint");
  auto from = std::make_shared<std::string>();
  auto to = std::make_shared<std::string>();
  auto step = std::make_shared<int64_t>(0);
  auto part_mib = std::make_shared<int64_t>(1024);
  auto json = std::make_shared<bool>(false);
  command->add_option("FROM", *from, "The folder of a checkpoint, or a file of weights")->required();
  command->add_option("TO", *to, "FILE.safetensors, or a folder, in which the checkpoint is made: TO/step_0000000012")
      ->required();
  auto* step_option = command->add_option("--step", *step, "The step of a checkpoint that is made of a file")
                          ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--part-size", *part_mib,
                   "Most MiB in a part of a checkpoint, which is in memory while it is written; a larger tensor has a "
                   "part of its own")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_flag("--json", *json, "Print one JSON object");
  auto quiet = std::make_shared<bool>(false);
  command->add_flag("--quiet", *quiet, "Show no progress on standard error");
  command->callback([=] {
    const progress::Display display(!*quiet);
    ConvertOptions options{.part_bytes = *part_mib << 20};
    if (step_option->count() > 0) options.step = *step;
    print_result(convert(open_source(*from), *to, options), *json ? ResultStyle::Json : ResultStyle::Text);
  });
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  auto* checkpoint = app.add_subcommand("checkpoint", "Inspect, verify, compare and convert checkpoints");
  checkpoint->require_subcommand(1);
  add_checkpoint_inspect(*checkpoint);
  add_checkpoint_verify(*checkpoint);
  add_checkpoint_diff(*checkpoint);
  add_checkpoint_convert(*checkpoint);
}

}  // namespace lockstep::tools
