#include "tools/train/input_scaling.h"

#include <algorithm>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress.h"
#include "tools/command/nearest.h"

namespace lockstep::tools {
namespace {

/// What is known of the values of each input, or of each channel of images.
struct InputValues {
  int64_t count = 0;
  torch::Tensor mean;
  /// The sums of the squares of differences to the mean.
  torch::Tensor squares;
  torch::Tensor smallest;
  torch::Tensor largest;

  /// Adds rows without cancellation: the variance of numbers such as times is small against their squares.
  void add(const torch::Tensor& rows) {
    const auto added = rows.size(0);
    const torch::Tensor added_mean = rows.mean(0);
    const torch::Tensor added_squares = (rows - added_mean).square().sum(0);
    if (count == 0) {
      mean = added_mean;
      squares = added_squares;
      smallest = std::get<0>(rows.min(0));
      largest = std::get<0>(rows.max(0));
    } else {
      const auto all = static_cast<double>(count + added);
      const torch::Tensor difference = added_mean - mean;
      squares += added_squares + difference.square() * (static_cast<double>(count) * static_cast<double>(added) / all);
      mean += difference * (static_cast<double>(added) / all);
      smallest = torch::minimum(smallest, std::get<0>(rows.min(0)));
      largest = torch::maximum(largest, std::get<0>(rows.max(0)));
    }
    count += added;
  }
  torch::Tensor deviation() const { return (squares / count).sqrt(); }
};

InputValues values_of_inputs(const ExamplePart& training, bool has_channels) {
  constexpr int64_t kRows = 256;
  InputValues values;
  int64_t examples = 0;
  progress::Task task("computing mean and variance", {.unit = "examples", .total = training.count});
  for (const auto& [inputs, targets] : training.batches(kRows, 0)) {
    const torch::Tensor numbers = inputs.to(torch::kDouble);
    LOCKSTEP_CHECK_DATA(numbers.isfinite().all().item<bool>(),
                        "[train] inputs must be finite numbers: examples=", examples, " to ",
                        examples + numbers.size(0) - 1, "; correct them, or leave features out with --features");
    values.add(has_channels ? numbers.transpose(0, 1).flatten(1).t() : numbers);
    examples += numbers.size(0);
    task.set(examples);
  }
  return values;
}

/// Warns of inputs whose values float32 rounds to a few different ones.
void warn_of_rounding(const InputValues& values, const DataForm& form, const std::string& mode) {
  constexpr double kStep = 0x1p-23;
  constexpr double kMostStep = 0.01;
  const torch::Tensor size = torch::maximum(values.smallest.abs(), values.largest.abs());
  const torch::Tensor is_coarse =
      (values.deviation() > 0).logical_and(size * kStep > values.deviation() * kMostStep).flatten();
  if (!is_coarse.any().item<bool>()) return;
  std::vector<std::string> names;
  for (int64_t i = 0; i < is_coarse.numel(); ++i) {
    if (!is_coarse[i].item<bool>()) continue;
    const bool has_name = static_cast<int64_t>(form.features.size()) == is_coarse.numel();
    names.push_back(has_name ? form.features[static_cast<size_t>(i)] : "input " + std::to_string(i));
  }
  LOCKSTEP_LOG(Warn) << "[train] values are large against their differences, which float32 rounds away: inputs="
                     << enumeration(names) << ", normalize=" << mode << "; use --normalize standard";
}

}  // namespace

InputScaling input_scaling(const std::string& mode, const DataForm& form, const ExamplePart& training) {
  if (mode != "standard") {
    const bool is_table = form.kind == "csv" || (!form.is_image && form.input_shape.size() == 1);
    if (is_table) warn_of_rounding(values_of_inputs(training, false), form, mode);
    return {torch::zeros({1}), torch::full({1}, mode == "unit" ? 1.0 / 255 : 1.0)};
  }
  const bool has_channels = form.input_shape.size() == 3;
  const InputValues values = values_of_inputs(training, has_channels);
  const torch::Tensor deviation = values.deviation();
  // An input with one value has a deviation that is a rounding error.
  const torch::Tensor varies = (values.largest > values.smallest).logical_and(deviation > 0);
  const std::vector<int64_t> shape = has_channels ? std::vector<int64_t>{form.input_shape[0], 1, 1} : form.input_shape;
  return {values.mean.reshape(shape), torch::where(varies, 1 / deviation, torch::ones_like(deviation)).reshape(shape)};
}

}  // namespace lockstep::tools
