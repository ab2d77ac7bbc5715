#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tools/train/examples.h"
#include "tools/train/networks.h"
#include "tools/train/settings.h"

/// The plan of a training: settings in which everything is decided. The file plan.json of a run folder has it.
namespace lockstep::tools {

struct TrainPlan {
  Settings settings = {};
  DataForm form = {};
  int64_t examples = 0;
  int64_t validation_examples = 0;
  /// What the data were (data_checksum.h); empty: not known, and of validation none of its own.
  std::string data_checksum = {};
  std::string validation_checksum = {};
  /// How inputs are scaled; undefined for text.
  torch::Tensor shift = {};
  torch::Tensor scale = {};
  /// The TorchScript file of the model, where it is not that of the settings: the copy in the run folder.
  std::string model_file = {};

  int64_t steps_per_epoch() const;
  std::shared_ptr<Network> make_model() const;

  Json to_json() const;
  static TrainPlan from_json(const Json& json, const std::string& place);
};

/// The examples of a training.
struct TrainData {
  ExamplePart training;
  std::optional<ExamplePart> validation;
};

struct PlannedTraining {
  TrainPlan plan;
  TrainData data;
};

/// Opens the data and decides what the settings leave open. `saved`: the plan of a run that is continued; ValueError
/// where the contents of the data are not those of the run. No random numbers are drawn, and no epoch of the returned
/// data begins.
PlannedTraining plan_training(Settings settings, const std::optional<TrainPlan>& saved);

/// Sets loss, metrics and learning rate where they are open. ValueError where they do not fit the task.
void choose_loss(TrainPlan& plan);

/// The files of a run folder.
std::string plan_path(const std::string& folder);
std::string checkpoints_path(const std::string& folder);
std::string weights_path(const std::string& folder);
std::string script_path(const std::string& folder);

/// Reads the plan of a run folder. DataError where there is none.
TrainPlan read_plan(const std::string& folder);

/// Prepares examples for a trainer: in batches, in random order where `shuffle` > 0.
ExampleDataset batches_of(const ExamplePart& examples, int64_t batch_size, int64_t shuffle = 0);

}  // namespace lockstep::tools
