#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

struct PrecisionOptions {
  /// "resnet18", "gpt" or "lstm".
  std::string model = "gpt";
  /// "CPU:0" or "GPU:0"; empty: the GPU if there is one.
  std::string device = {};
  /// Examples of a step; 0: those of the model.
  int64_t batch = 0;
  /// Steps whose losses are compared.
  int steps = 100;
  double seconds = 6.0;
};

/// A step in bfloat16 by `Policy`, against LibTorch alone with its own autocast; and the losses of a training in
/// bfloat16 against those of the same training in float32.
struct PrecisionResult {
  PrecisionOptions options;
  double seconds_autocast = 0;
  double seconds_policy = 0;
  double seconds_float = 0;
  /// seconds_policy / seconds_autocast.
  double ratio = 0;
  /// seconds_float / seconds_policy.
  double speedup = 0;
  /// The mean losses of the last tenth of the steps, and the largest difference of smoothed losses, relative to the
  /// loss of float32.
  double last_loss_float = 0;
  double last_loss_bfloat16 = 0;
  double largest_difference = 0;
};

PrecisionResult bench_precision(const PrecisionOptions& options);

}  // namespace lockstep::bench
