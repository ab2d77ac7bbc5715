#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/train/tensorboard/hyper_parameters.h"

/// Internal: the messages of event files, encoded as protocol buffers. With protozero (event_message.cpp); without it
/// (no_event_message.cpp) each function is a NotImplementedError.
namespace lockstep::tensorboard {

/// The parts of one Summary.Value.
struct SummaryValue {
  std::string_view tag;
  /// Which page of TensorBoard shows it: "scalars", "histograms", "images", "text", "hparams".
  std::string_view plugin;
  /// What the plugin keeps beside the value.
  std::string plugin_content = {};
  std::string_view description = {};
  /// An encoded TensorProto.
  std::string tensor;
};

/// Whether this build encodes messages.
bool has_event_messages();

/// A value of a step.
std::string encode_event(double wall_time, int64_t step, const SummaryValue& value);
/// The first record of a file.
std::string encode_file_version(double wall_time);
/// Tells readers that what they have read of `step` and later steps is not valid.
std::string encode_session_start(double wall_time, int64_t step);

/// The step of an event; 0 where it names none, or is damaged.
LOCKSTEP_API int64_t decode_step(std::string_view event);

/// float32 without dimensions.
std::string encode_scalar(float value);
/// A tensor of float64 on the CPU.
std::string encode_doubles(const at::Tensor& values);
/// Texts or bytes: one dimension, or none where `is_scalar`, for one of them.
std::string encode_strings(const std::vector<std::string>& values, bool is_scalar);

/// What the HParams page keeps: the plugin's content of three values without a tensor, their tags, and that tensor.
std::string encode_experiment(double time, const HyperParameters& parameters, const std::vector<ShownMetric>& metrics);
std::string encode_session_start_info(double time, const HyperParameters& parameters);
std::string encode_session_end_info(double time, SessionStatus status);
std::string encode_no_tensor();

}  // namespace lockstep::tensorboard
