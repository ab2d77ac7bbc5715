#include <algorithm>
#include <functional>
#include <numeric>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "tools/command/nearest.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

std::string choose_array(const std::vector<std::string>& names, const Settings& settings, const OpenOptions& options,
                         const std::string& place) {
  const auto given = options.form ? options.form->features : settings.list("features");
  LOCKSTEP_CHECK_VALUE(given.size() <= 1, "[train] one array is the input: ", place, ", features=", enumeration(given));
  const auto is_there = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!given.empty()) {
    LOCKSTEP_CHECK_VALUE(is_there(given[0]), "[train] there is no such array: ", place, ", array=", given[0],
                         ", arrays=", enumeration(names));
    return given[0];
  }
  for (const char* usual : {"x", "x_train", "images", "image", "inputs", "features", "data"}) {
    if (is_there(usual)) return usual;
  }
  LOCKSTEP_THROW(c10::ValueError, "[train] the input is not known: ", place, ", arrays=", enumeration(names),
                 "; give one of them as --features");
}

/// Images with the channels behind become [rows, channels, height, width].
at::Tensor channels_first(const at::Tensor& array) {
  const auto is_channels = [](int64_t size) { return size == 1 || size == 3 || size == 4; };
  if (array.dim() == 3) return array.unsqueeze(1);
  if (array.dim() == 4 && is_channels(array.size(3)) && !is_channels(array.size(1))) return array.permute({0, 3, 1, 2});
  return array;
}

at::Tensor array_targets(const at::Tensor& array, DataForm& form, const Settings& settings, bool is_fixed,
                         const std::string& place) {
  at::Tensor targets = array;
  if (!is_fixed) {
    form.task = task_of_settings(settings).value_or(targets.is_floating_point() ? Task::Numbers : Task::Classes);
  }
  if (form.task == Task::Numbers) {
    targets = targets.to(torch::kFloat).reshape({targets.size(0), -1});
    LOCKSTEP_CHECK_DATA(!is_fixed || targets.size(1) == form.num_outputs,
                        "[train] targets must have as many values as those of the training data: ", place,
                        ", values=", targets.size(1), ", training=", form.num_outputs);
    form.num_outputs = targets.size(1);
    if (targets.numel() > 0) check_numbers(targets, settings, place);
    return targets;
  }
  LOCKSTEP_CHECK_DATA(!targets.is_floating_point() && targets.numel() == targets.size(0),
                      "[train] classes are one integer for each row: ", place, ", shape=", targets.sizes(),
                      "; give --loss mse to learn numbers");
  targets = targets.to(torch::kLong).reshape({-1});
  if (is_fixed) {
    check_known_classes(targets, form);
  } else if (targets.numel() > 0) {
    set_classes(form, settings, targets.min().item<int64_t>(), targets.max().item<int64_t>(), place);
  }
  return targets;
}

/// Numbers without loss: float32 does not have all integers and times.
at::Tensor as_stored(const at::Tensor& array) {
  const at::ScalarType dtype = array.scalar_type();
  if (dtype == torch::kByte || dtype == torch::kFloat || dtype == torch::kDouble) return array;
  return array.to(at::elementSize(dtype) < 4 ? torch::kFloat : torch::kDouble);
}

}  // namespace

void check_known_classes(const at::Tensor& classes, const DataForm& form) {
  if (classes.numel() == 0) return;
  LOCKSTEP_CHECK_DATA(classes.min().item<int64_t>() >= 0 && classes.max().item<int64_t>() < form.num_classes,
                      "[train] a class that the training data do not have: smallest=", classes.min().item<int64_t>(),
                      ", largest=", classes.max().item<int64_t>(), ", classes=", form.num_classes);
}

void check_numbers(const at::Tensor& targets, const Settings& settings, const std::string& place) {
  LOCKSTEP_CHECK_DATA(targets.isfinite().all().item<bool>(), "[train] targets must be finite numbers: ", place);
  const bool is_binary = settings.find_text("loss") == "binary_cross_entropy";
  LOCKSTEP_CHECK_DATA(!is_binary || ((targets == 0) | (targets == 1)).all().item<bool>(),
                      "[train] binary_cross_entropy learns 0 and 1: ", place,
                      ", smallest=", targets.min().item<float>(), ", largest=", targets.max().item<float>());
}

at::Tensor no_targets(const DataForm& form, int64_t rows) {
  return form.task == Task::Numbers ? torch::zeros({rows, form.num_outputs}) : torch::zeros({rows}, torch::kLong);
}

std::vector<int64_t> shape_of_rows(at::IntArrayRef row, const Settings& settings, const OpenOptions& options,
                                   const std::string& place) {
  std::vector<int64_t> shape = row.vec();
  if (options.form) shape = options.form->input_shape;
  if (const auto wanted = settings.find_text("input-shape"); wanted && !options.form) {
    shape = parse_sizes(*wanted, "--input-shape");
  }
  const auto product = [](at::IntArrayRef sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  };
  LOCKSTEP_CHECK_VALUE(product(shape) == product(row),
                       "[train] an example must have as many values as its shape: ", place, ", values=", product(row),
                       ", shape=", at::IntArrayRef(shape));
  return shape;
}

OpenedData open_npz(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  const std::string place = "file=\"" + paths[0] + "\"";
  LOCKSTEP_CHECK_VALUE(paths.size() == 1, "[train] data are one npz file: files=", paths.size());
  DataForm form = options.form.value_or(DataForm{.kind = "npz"});
  LOCKSTEP_CHECK_VALUE(form.kind == "npz", "[train] the training data were no npz file: ", place,
                       ", training=", form.kind);
  std::vector<std::string> names;
  for (const auto& array : data::npz_members(paths[0])) names.push_back(array.name);
  const std::string target = choose_target(names, settings, options, place);
  form.features = {choose_array(names, settings, options, place)};
  if (!options.form) form.target = target;
  if (!options.form && target.empty()) form.task = task_of_settings(settings).value_or(Task::Classes);
  const auto arrays =
      data::load_npz(paths[0], target.empty() ? form.features : std::vector<std::string>{form.features[0], target});
  at::Tensor inputs = arrays.at(form.features[0]);
  LOCKSTEP_CHECK_DATA(inputs.dim() > 0 && !inputs.is_complex(),
                      "[train] an array must have rows of real numbers: ", place, ", array=", form.features[0]);
  inputs = channels_first(as_stored(inputs));
  if (inputs.dim() == 1) inputs = inputs.unsqueeze(1);
  const at::Tensor is_bad = inputs.isfinite().logical_not().flatten(1).any(1);
  LOCKSTEP_CHECK_DATA(!is_bad.any().item<bool>(), "[train] inputs must be finite numbers: ", place,
                      ", array=", form.features[0], ", row=", is_bad.to(torch::kByte).argmax().item<int64_t>());
  form.input_shape = shape_of_rows(inputs.sizes().slice(1), settings, options, place);
  std::vector<int64_t> sizes = form.input_shape;
  sizes.insert(sizes.begin(), inputs.size(0));
  inputs = inputs.reshape(sizes).contiguous();
  const bool is_fixed = options.form.has_value();
  const at::Tensor targets =
      target.empty() ? no_targets(form, inputs.size(0))
                     : array_targets(arrays.at(target), form, settings, is_fixed, place + ", array=" + target);
  LOCKSTEP_CHECK_DATA(targets.size(0) == inputs.size(0), "[train] arrays must have equally many rows: ", place,
                      ", rows=", inputs.size(0), ", rows of the target=", targets.size(0));
  return tensors_as_data(std::move(form), inputs, targets.contiguous());
}

}  // namespace lockstep::tools
