#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/text/csv.h"
#include "tools/command/nearest.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

template <class T>
bool read_as(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && !text.empty();
}

/// The columns of CSV files: the numbers of the features, and the target as text.
struct Table {
  std::vector<std::string> features;
  std::vector<float> numbers;
  std::vector<std::string> targets;
};

std::vector<size_t> columns_of(const std::vector<std::string>& features, const std::vector<std::string>& names,
                               const std::string& place) {
  std::vector<size_t> columns;
  for (const std::string& feature : features) {
    const auto found = std::find(names.begin(), names.end(), feature);
    LOCKSTEP_CHECK_VALUE(found != names.end(), "[train] there is no such column: ", place, ", column=", feature,
                         did_you_mean(feature, names));
    columns.push_back(static_cast<size_t>(found - names.begin()));
  }
  return columns;
}

/// The names of the columns, without the mark that some programs put before the first one of UTF-8.
std::vector<std::string> column_names(const data::CsvReader& reader, const std::string& place) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  std::vector<std::string> names = reader.names();
  if (!names.empty() && names[0].starts_with(kMark)) {
    std::string& first = names[0];
    first.erase(0, kMark.size());
    if (first.size() > 1 && first.front() == '"' && first.back() == '"') first = first.substr(1, first.size() - 2);
  }
  std::set<std::string> known;
  for (const std::string& name : names) {
    LOCKSTEP_CHECK_DATA(known.insert(name).second, "[train] columns must have different names: ", place,
                        ", column=", name, "; rename one of them");
  }
  return names;
}

float read_feature(const data::CsvReader& reader, const std::vector<std::string>& fields, size_t column,
                   const std::string& name, const std::string& place) {
  float value = std::numeric_limits<float>::quiet_NaN();
  try {
    value = reader.number<float>(fields, column);
  } catch (const DataError&) {
    // The message below has the name of the column.
  }
  LOCKSTEP_CHECK_DATA(std::isfinite(value), "[train] a feature must be a finite number: ", place,
                      ", line=", reader.line(), ", column=", name, ", text=\"", fields[column],
                      "\"; correct it, or leave it out with --features");
  return value;
}

std::string without_spaces(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string read_table(const std::string& path, const Settings& settings, const OpenOptions& options, Table& table) {
  data::CsvReader reader(path, {.header = true});
  std::vector<std::string> fields;
  const bool has_rows = reader.next(fields);
  const std::string place = "file=\"" + path + "\"";
  const std::vector<std::string> names = column_names(reader, place);
  const std::string target = choose_target(names, settings, options, place);
  if (table.features.empty()) {
    table.features = options.form ? options.form->features : settings.list("features");
    if (table.features.empty()) {
      std::copy_if(names.begin(), names.end(), std::back_inserter(table.features),
                   [&](const std::string& name) { return name != target; });
    }
    const bool is_feature = std::find(table.features.begin(), table.features.end(), target) != table.features.end();
    LOCKSTEP_CHECK_VALUE(target.empty() || !is_feature, "[train] the target cannot be a feature: ", place,
                         ", target=", target);
  }
  const std::vector<size_t> columns = columns_of(table.features, names, place);
  const size_t target_column = std::find(names.begin(), names.end(), target) - names.begin();
  progress::Task task("reading " + path, {.unit = "rows"});
  for (bool more = has_rows; more; more = reader.next(fields)) {
    task.add(1);
    for (const size_t column : columns) {
      table.numbers.push_back(read_feature(reader, fields, column, names[column], place));
    }
    table.targets.push_back(target.empty() ? "" : without_spaces(fields[target_column]));
    LOCKSTEP_CHECK_DATA(target.empty() || !options.needs_target || !table.targets.back().empty(),
                        "[train] a row has no target: ", place, ", line=", reader.line(), ", column=", target,
                        "; fill it in, or remove the row");
  }
  return target;
}

at::Tensor named_classes(const std::vector<std::string>& texts, DataForm& form, bool is_fixed) {
  if (!is_fixed) {
    const std::set<std::string> names(texts.begin(), texts.end());
    form.class_names.assign(names.begin(), names.end());
    form.num_classes = std::max<int64_t>(2, static_cast<int64_t>(names.size()));
  }
  std::map<std::string, int64_t> numbers;
  for (size_t i = 0; i < form.class_names.size(); ++i) numbers[form.class_names[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> classes;
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto found = numbers.find(texts[row]);
    LOCKSTEP_CHECK_DATA(found != numbers.end(), "[train] a class that the training data do not have: row=", row,
                        ", class=", texts[row], ", classes=", enumeration(form.class_names));
    classes.push_back(found->second);
  }
  return torch::tensor(classes, torch::kLong);
}

void check_known_classes(const at::Tensor& classes, const DataForm& form) {
  if (classes.numel() == 0) return;
  LOCKSTEP_CHECK_DATA(classes.min().item<int64_t>() >= 0 && classes.max().item<int64_t>() < form.num_classes,
                      "[train] a class that the training data do not have: smallest=", classes.min().item<int64_t>(),
                      ", largest=", classes.max().item<int64_t>(), ", classes=", form.num_classes);
}

/// DataError where targets are no classes of texts: most of them are numbers.
void check_texts(const std::vector<std::string>& texts, size_t num_numbers, const std::string& place) {
  if (num_numbers == texts.size() || num_numbers * 2 <= texts.size()) return;
  float number = 0;
  const auto other =
      std::find_if_not(texts.begin(), texts.end(), [&](const auto& text) { return read_as(text, number); });
  LOCKSTEP_THROW(DataError, "[train] most targets are numbers, but not all: ", place,
                 ", row=", other - texts.begin() + 1, ", text=\"", *other, "\"; correct it, or remove the row");
}

/// DataError for targets that the loss cannot learn.
void check_numbers(const at::Tensor& targets, const Settings& settings, const std::string& place) {
  LOCKSTEP_CHECK_DATA(targets.isfinite().all().item<bool>(), "[train] targets must be finite numbers: ", place);
  const bool is_binary = settings.find_text("loss") == "binary_cross_entropy";
  LOCKSTEP_CHECK_DATA(!is_binary || ((targets == 0) | (targets == 1)).all().item<bool>(),
                      "[train] binary_cross_entropy learns 0 and 1: ", place,
                      ", smallest=", targets.min().item<float>(), ", largest=", targets.max().item<float>());
}

/// The targets of a table as classes or numbers; sets the task where the form does not have it.
at::Tensor parsed_targets(const std::vector<std::string>& texts, DataForm& form, const Settings& settings,
                          bool is_fixed, const std::string& place) {
  std::vector<int64_t> integers;
  std::vector<float> numbers;
  int64_t integer = 0;
  float number = 0;
  for (const std::string& text : texts) {
    if (read_as(text, integer)) integers.push_back(integer);
    if (read_as(text, number)) numbers.push_back(number);
  }
  const bool all_integers = integers.size() == texts.size();
  const bool all_numbers = numbers.size() == texts.size();
  if (!is_fixed) {
    check_texts(texts, numbers.size(), place);
    form.task = task_of_settings(settings).value_or(all_numbers && !all_integers ? Task::Numbers : Task::Classes);
  }
  if (form.task == Task::Numbers) {
    LOCKSTEP_CHECK_DATA(all_numbers, "[train] the target must be a number in all rows: ", place);
    const at::Tensor targets = torch::tensor(numbers).view({-1, 1});
    if (!numbers.empty()) check_numbers(targets, settings, place);
    return targets;
  }
  if (!form.class_names.empty() || (!is_fixed && !all_numbers)) {
    LOCKSTEP_CHECK_VALUE(is_fixed || !settings.has("classes"),
                         "[train] --classes is for classes that are integers: ", place, ", class=", texts[0],
                         "; leave it out");
    return named_classes(texts, form, is_fixed);
  }
  LOCKSTEP_CHECK_DATA(all_integers, "[train] classes must be integers or texts: ", place,
                      "; give --loss mse to learn numbers");
  const at::Tensor classes = torch::tensor(integers, torch::kLong);
  if (is_fixed) {
    check_known_classes(classes, form);
  } else if (!integers.empty()) {
    const auto [smallest, largest] = std::minmax_element(integers.begin(), integers.end());
    set_classes(form, settings, *smallest, *largest, place);
  }
  return classes;
}

at::Tensor no_targets(const DataForm& form, int64_t rows) {
  return form.task == Task::Numbers ? torch::zeros({rows, form.num_outputs}) : torch::zeros({rows}, torch::kLong);
}

/// The shape of the model's input for rows of this shape.
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

}  // namespace

OpenedData open_csv(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  Table table;
  DataForm form = options.form.value_or(DataForm{.kind = "csv"});
  const std::string place = "file=\"" + paths[0] + "\"";
  LOCKSTEP_CHECK_VALUE(form.kind == "csv", "[train] the training data were no CSV files: ", place,
                       ", training=", form.kind);
  std::string target;
  for (const std::string& path : paths) target = read_table(path, settings, options, table);
  form.features = table.features;
  if (!options.form) form.target = target;
  if (!options.form && target.empty()) form.task = task_of_settings(settings).value_or(Task::Classes);
  const auto rows = static_cast<int64_t>(table.targets.size());
  const auto columns = static_cast<int64_t>(table.features.size());
  LOCKSTEP_CHECK_VALUE(columns > 0, "[train] there is no column beside the target: ", place);
  form.input_shape = shape_of_rows({columns}, settings, options, place);
  std::vector<int64_t> sizes = form.input_shape;
  sizes.insert(sizes.begin(), rows);
  const at::Tensor inputs = torch::tensor(table.numbers, torch::kFloat).view(sizes);
  const bool is_fixed = options.form.has_value();
  const at::Tensor targets =
      target.empty() ? no_targets(form, rows)
                     : parsed_targets(table.targets, form, settings, is_fixed, place + ", column=" + target);
  return tensors_as_data(std::move(form), inputs, targets);
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
  inputs = channels_first(inputs.scalar_type() == torch::kByte ? inputs : inputs.to(torch::kFloat));
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
