#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "tools/subcommands.h"
#include "tools/train/settings.h"
#include "tools/train/train_run.h"

namespace lockstep::tools {
namespace {

/// The flags of settings as the parser stores them.
class SettingFlags {
 public:
  void add(CLI::App& command, const Setting& setting) {
    const std::string flag = std::string("--") + setting.name;
    std::string description = setting.description;
    if (*setting.default_value != '\0') description += std::string(" (default ") + setting.default_value + ")";
    CLI::Option* option = nullptr;
    if (setting.type == Setting::Type::List) {
      description += "; a comma separates several";
      option = command.add_option(flag, lists_[setting.name], description)->delimiter(',')->allow_extra_args(false);
    } else {
      option = command.add_option(flag, texts_[setting.name], description);
    }
    // `check_words` refuses other words, with the nearest one.
    const auto allowed = setting.allowed();
    option->type_name(allowed.empty() ? setting.value : "TEXT:{" + std::string(setting.choices) + "}");
    option->group(setting.group);
    options_[setting.name] = option;
  }

  GivenFlags given() const {
    GivenFlags flags;
    for (const auto& [name, option] : options_) {
      if (option->count() == 0) continue;
      const auto list = lists_.find(name);
      flags[name] = list != lists_.end() ? list->second : std::vector{texts_.at(name)};
    }
    return flags;
  }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<std::string>> lists_;
  std::map<std::string, CLI::Option*> options_;
};

void add_chosen(SettingFlags& flags, CLI::App& command, const std::vector<std::string>& names) {
  for (const std::string& name : names) flags.add(command, setting_named(name));
}

constexpr const char* kModelText = "The folder of a run, or a model file (.pt, .safetensors)";

struct ModelCommand {
  ModelRequest request;
  SettingFlags flags;
  bool json = false;
};

std::shared_ptr<ModelCommand> add_model_command(CLI::App& command) {
  auto state = std::make_shared<ModelCommand>();
  command.add_option("MODEL", state->request.model, kModelText)->required()->type_name("FOLDER|FILE");
  command.add_flag("--json", state->json, "Print one JSON object");
  return state;
}

void add_output(CLI::App& command, ModelRequest& request, const char* what) {
  command.add_option("-o,--output", request.output, what)->required()->type_name("FILE");
  command.add_flag("--force", request.force, "Replace an existing output; never data, the model, or a file of a run");
}

template <class Run>
void set_model_callback(CLI::App& command, const std::shared_ptr<ModelCommand>& state, Run run) {
  command.callback([state, run] {
    state->request.flags = state->flags.given();
    if (state->json) state->request.style = ResultStyle::Json;
    run(state->request);
  });
}

constexpr const char* kRunGroup = "The run";

const std::vector<std::string> kUseSettings{"data",       "target",   "features",  "classes", "input-shape",
                                            "image-size", "length",   "normalize", "loss",    "batch-size",
                                            "strategy",   "replicas", "devices"};

}  // namespace

void add_train(CLI::App& app) {
  struct TrainCommand {
    TrainRequest request;
    SettingFlags flags;
    bool json = false;
  };
  auto* command = app.add_subcommand("train", "Train a model on data, without a program");
  auto state = std::make_shared<TrainCommand>();
  for (const Setting& setting : all_settings()) state->flags.add(*command, setting);
  command
      ->add_option("--config", state->request.config,
                   "A TOML or JSON file of settings: the names of these flags without dashes before them; flags win")
      ->type_name("FILE")
      ->group(kRunGroup);
  command->add_flag("--resume", state->request.resume, "Continue the run of --folder; its plan is read from there")
      ->group(kRunGroup);
  command
      ->add_flag("--dry-run", state->request.dry_run,
                 "Check everything that a start checks, print the resolved plan, and start and write nothing")
      ->group(kRunGroup);
  command->add_flag("--quiet", state->request.quiet, "Print no progress")->group(kRunGroup);
  command->add_flag("--json", state->json, "Print the result as one JSON object")->group(kRunGroup);
  command->footer(
      "\nExamples:\n"
      "  lockstep train --model mlp --data digits.csv --target label --epochs 20 --validation 0.2\n"
      "  lockstep train --model cnn --data digits.csv --input-shape 1x8x8 --replicas 2 --folder runs/digits\n"
      "  lockstep train --folder runs/digits --resume\n"
      "  lockstep run -n 2 -- lockstep train --model mlp --data digits.csv --replicas 1");
  command->callback([state] {
    state->request.flags = state->flags.given();
    if (state->json) state->request.style = ResultStyle::Json;
    const int status = run_training(state->request);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

void add_eval(CLI::App& app) {
  auto* command = app.add_subcommand("eval", "Compute loss and metrics of a trained model over data");
  const auto state = add_model_command(*command);
  add_chosen(state->flags, *command, kUseSettings);
  add_chosen(state->flags, *command, {"metrics"});
  command->add_flag("--quiet", state->request.quiet, "Print no progress");
  command->footer("\nExamples:\n  lockstep eval runs/digits --data other.csv");
  set_model_callback(*command, state, run_evaluation);
}

void add_predict(CLI::App& app) {
  auto* command = app.add_subcommand("predict", "Write the outputs of a trained model for data");
  const auto state = add_model_command(*command);
  add_output(*command, state->request, "The file: .csv (class and probability, or numbers) or .npz (output, class)");
  add_chosen(state->flags, *command, kUseSettings);
  command->add_flag("--quiet", state->request.quiet, "Print no progress");
  command->footer("\nExamples:\n  lockstep predict runs/digits --data other.csv -o predictions.csv");
  set_model_callback(*command, state, run_prediction);
}

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand("export", "Write a trained model as TorchScript, or as safetensors");
  const auto state = add_model_command(*command);
  add_output(*command, state->request, "The file: .pt (TorchScript) or .safetensors");
  command->footer("\nExamples:\n  lockstep export runs/digits -o digits.pt");
  set_model_callback(*command, state, run_export);
}

}  // namespace lockstep::tools
