#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/print_result.h"
#include "tools/train/settings.h"

/// What the subcommands train, eval, predict and export do. Errors are exceptions.
namespace lockstep::tools {

struct TrainRequest {
  GivenFlags flags = {};
  /// Empty: none.
  std::string config = {};
  bool resume = false;
  bool dry_run = false;
  bool quiet = false;
  ResultStyle style = ResultStyle::Text;
};

/// Trains; returns the exit status.
int run_training(const TrainRequest& request);

struct ModelRequest {
  /// A run folder, or a model file: TorchScript, or safetensors of `lockstep export`.
  std::string model = {};
  GivenFlags flags = {};
  std::string output = {};
  bool quiet = false;
  /// Whether an existing output is replaced.
  bool force = false;
  ResultStyle style = ResultStyle::Text;
};

/// Prints loss and metrics over data.
void run_evaluation(const ModelRequest& request);
/// Writes the outputs for data to a CSV or npz file, under another name until it is whole. See `check_output`.
void run_prediction(const ModelRequest& request);
/// Writes the model to a TorchScript (.pt) or safetensors file, in the same way.
void run_export(const ModelRequest& request);

}  // namespace lockstep::tools
