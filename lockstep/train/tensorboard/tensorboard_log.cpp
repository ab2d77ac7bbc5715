#include "lockstep/train/tensorboard/tensorboard_log.h"

#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/train/tensorboard/event_files.h"
#include "lockstep/train/tensorboard/event_message.h"

namespace lockstep::tensorboard {
namespace {

constexpr std::string_view kValidation = "val_";

/// For a TensorBoard that has read the older files before.
SummaryWriterOptions options_after(int64_t step) {
  return {.purge_step = step == 0 ? 0 : step + 1, .filename_suffix = kTrainingSuffix};
}

std::string validation_in(const std::string& folder) { return folder + "/validation"; }

/// Not all of TensorBoard's readers look at the mark in the new file: older ones have no later steps.
const std::string& prepared(const std::string& folder, int64_t step) {
  encode_file_version(0);  // throws where nothing can be written
  if (step == 0) {
    if (has_earlier_events(folder)) move_event_files(folder, folder_for_earlier(folder));
    return folder;
  }
  cut_event_files(folder, step);
  cut_event_files(validation_in(folder), step);
  return folder;
}

}  // namespace

std::optional<double> learning_rate_of(const Trainer& trainer) {
  try {
    return trainer.lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

TensorBoardLog::TensorBoardLog(std::string folder, int64_t step)
    : folder_(std::move(folder)), first_step_(step), training_(prepared(folder_, step), options_after(step)) {
  if (!earlier_event_files(validation_in(folder_)).empty()) make_validation();
}

void TensorBoardLog::make_validation() { validation_.emplace(validation_in(folder_), options_after(first_step_)); }

void TensorBoardLog::hyper_parameters(const HyperParameters& parameters) {
  has_parameters_ = true;
  training_.hyper_parameters(parameters);
}

void TensorBoardLog::add_step(int64_t step, double loss, std::optional<double> rate) {
  training_.scalar("step/loss", loss, step);
  if (rate) training_.scalar("step/learning_rate", *rate, step);
}

void TensorBoardLog::add_epoch(int64_t step, const Logs& logs, std::optional<double> rate) {
  for (const auto& [name, value] : logs) {
    if (!name.starts_with(kValidation)) {
      training_.scalar("epoch/" + name, value, step);
      continue;
    }
    if (!validation_) make_validation();
    validation_->scalar("epoch/" + name.substr(kValidation.size()), value, step);
  }
  if (rate) training_.scalar("epoch/learning_rate", *rate, step);
  training_.flush();
  if (validation_) validation_->flush();
}

void TensorBoardLog::add_histograms(int64_t step, const State& values) {
  for (const auto& [name, value] : values) {
    const auto* const tensor = std::get_if<StateTensor>(&value);
    if (tensor == nullptr) continue;
    const at::Tensor read = tensor->read();
    if (read.is_floating_point()) training_.histogram("parameters/" + name, read, step);
  }
}

void TensorBoardLog::end(SessionStatus status) {
  // TensorBoard keeps the first end of a session that it reads: one that goes on has none.
  if (has_parameters_ && status == SessionStatus::Success) training_.session_end(status);
  training_.close();
  if (validation_) validation_->close();
}

}  // namespace lockstep::tensorboard
