#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/formats/text/csv.h"
#include "tools/command/nearest.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

std::string without_spaces(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

template <class T>
std::optional<T> number_in(const std::string& field) {
  std::string text = without_spaces(field);
  if (text.starts_with('+') && !text.starts_with("+-")) text.erase(0, 1);
  T value{};
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (text.empty() || read.ptr != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    // Too small a number is 0, too large a one is infinite.
    if (read.ec == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);
  }
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

/// The columns of CSV files: the numbers of the features, and the target as text.
struct Table {
  /// The columns of the first file.
  std::vector<std::string> names;
  std::vector<std::string> features;
  std::string target;
  std::vector<double> numbers;
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
std::vector<std::string> column_names(const data::CsvReader& reader) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  std::vector<std::string> names = reader.names();
  if (!names.empty() && names[0].starts_with(kMark)) {
    std::string& first = names[0];
    first.erase(0, kMark.size());
    if (first.size() > 1 && first.front() == '"' && first.back() == '"') first = first.substr(1, first.size() - 2);
  }
  return names;
}

/// DataError for a first line that has no names of columns. Names that the settings give are names.
void check_header(const std::vector<std::string>& names, const Settings& settings, const OpenOptions& options,
                  const std::string& place) {
  std::set<std::string> known;
  for (const std::string& name : names) {
    LOCKSTEP_CHECK_DATA(known.insert(name).second, "[train] columns must have different names: ", place,
                        ", column=", name, "; rename one of them; the first line must have the names");
  }
  if (options.form || settings.has("features")) return;
  bool counts = true;
  for (size_t i = 0; i < names.size(); ++i) {
    LOCKSTEP_CHECK_DATA(!names[i].empty(), "[train] a column has no name: ", place, ", column=", i,
                        "; name it, or name the columns to learn from with --features (a table of pandas has its index "
                        "there: write it with index=False)");
    counts =
        counts && number_in<int64_t>(names[i]) == number_in<int64_t>(names[0]).value_or(0) + static_cast<int64_t>(i);
    const double number = number_in<double>(names[i]).value_or(0);
    LOCKSTEP_CHECK_DATA(!std::isfinite(number) || number == 0 || number_in<int64_t>(names[i]),
                        "[train] the first line must have the names of the columns: ", place, ", name=", names[i],
                        "; put a line of names before it, or give these names as --features");
  }
  const bool all_numbers =
      std::all_of(names.begin(), names.end(), [](const auto& name) { return number_in<int64_t>(name).has_value(); });
  LOCKSTEP_CHECK_DATA(!all_numbers || counts, "[train] the first line must have the names of the columns: ", place,
                      ", names=", enumeration(names),
                      "; put a line of names before it, or give these names as --features");
}

double read_feature(const data::CsvReader& reader, const std::vector<std::string>& fields, size_t column,
                    const std::string& name, const std::string& place) {
  const auto value = number_in<double>(fields[column]);
  LOCKSTEP_CHECK_DATA(value && std::isfinite(*value), "[train] a feature must be a finite number: ", place,
                      ", line=", reader.line(), ", column=", name, ", text=\"", fields[column],
                      "\"; correct it, or leave it out with --features");
  return *value;
}

/// Reads a row of so many columns; false at the end. Empty lines behind the last row are none.
bool next_row(data::CsvReader& reader, std::vector<std::string>& fields, size_t columns, const std::string& place) {
  bool more = true;
  int64_t empty_line = 0;
  std::exception_ptr problem;
  do {
    try {
      more = reader.next(fields);
    } catch (const DataError&) {
      if (!problem) problem = std::current_exception();
      const bool is_empty = columns > 1 && fields.size() == 1 && fields[0].empty();
      if (!is_empty) std::rethrow_exception(problem);
      continue;
    }
    if (!more) return false;
    const bool is_empty = fields.size() == 1 && fields[0].empty();
    if (problem && !is_empty) std::rethrow_exception(problem);
    LOCKSTEP_CHECK_DATA(is_empty || empty_line == 0, "[train] an empty line between rows: ", place,
                        ", line=", empty_line, "; remove it");
    if (!is_empty) return true;
    empty_line = empty_line == 0 ? reader.line() : empty_line;
  } while (more);
  return false;
}

/// Chooses target and features from the first file; other files must have the same columns.
void describe_columns(Table& table, const std::vector<std::string>& names, const Settings& settings,
                      const OpenOptions& options, const std::string& place) {
  if (!table.names.empty()) {
    const auto differs = std::mismatch(names.begin(), names.end(), table.names.begin(), table.names.end());
    LOCKSTEP_CHECK_DATA(names == table.names, "[train] all CSV files must have the columns of the first one: ", place,
                        ", column=", differs.first - names.begin(),
                        ", name=", differs.first == names.end() ? "" : *differs.first,
                        ", name in the first file=", differs.second == table.names.end() ? "" : *differs.second);
    return;
  }
  check_header(names, settings, options, place);
  table.names = names;
  table.target = choose_target(names, settings, options, place);
  table.features = options.form ? options.form->features : settings.list("features");
  if (table.features.empty()) {
    std::copy_if(names.begin(), names.end(), std::back_inserter(table.features),
                 [&](const std::string& name) { return name != table.target; });
  }
  const bool is_feature = std::find(table.features.begin(), table.features.end(), table.target) != table.features.end();
  LOCKSTEP_CHECK_VALUE(table.target.empty() || !is_feature, "[train] the target cannot be a feature: ", place,
                       ", target=", table.target);
}

void read_table(const std::string& path, const Settings& settings, const OpenOptions& options, Table& table) {
  data::CsvReader reader(path, {.header = true});
  const std::string place = "file=\"" + path + "\"";
  const std::vector<std::string> names = column_names(reader);
  describe_columns(table, names, settings, options, place);
  const std::vector<size_t> columns = columns_of(table.features, names, place);
  const std::string& target = table.target;
  const size_t target_column = std::find(names.begin(), names.end(), target) - names.begin();
  progress::Task task("reading " + path, {.unit = "rows"});
  for (std::vector<std::string> fields; next_row(reader, fields, names.size(), place);) {
    task.add(1);
    for (const size_t column : columns) {
      table.numbers.push_back(read_feature(reader, fields, column, names[column], place));
    }
    table.targets.push_back(target.empty() ? "" : without_spaces(fields[target_column]));
    LOCKSTEP_CHECK_DATA(target.empty() || !options.needs_target || !table.targets.back().empty(),
                        "[train] a row has no target: ", place, ", line=", reader.line(), ", column=", target,
                        "; fill it in, or remove the row");
  }
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

/// The first text that is no number, with its row, for messages.
std::string first_text(const std::vector<std::string>& texts) {
  const auto other =
      std::find_if_not(texts.begin(), texts.end(), [](const auto& text) { return number_in<double>(text); });
  return c10::str("row=", other - texts.begin() + 1, ", text=\"", *other, "\"");
}

/// DataError where targets are probably no classes of texts: most of them are numbers.
void check_texts(const std::vector<std::string>& texts, size_t num_numbers, const std::string& place) {
  if (num_numbers == texts.size() || num_numbers * 2 <= texts.size()) return;
  LOCKSTEP_THROW(DataError, "[train] most targets are numbers, but not all: ", place, ", ", first_text(texts),
                 "; correct it, or remove the row; --loss cross_entropy takes all of them for classes");
}

/// The targets of a table as classes or numbers; sets the task where the form does not have it.
at::Tensor parsed_targets(const std::vector<std::string>& texts, DataForm& form, const Settings& settings,
                          bool is_fixed, const std::string& place) {
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    if (const auto integer = number_in<int64_t>(text)) integers.push_back(*integer);
    if (const auto number = number_in<double>(text)) numbers.push_back(*number);
  }
  const bool all_integers = integers.size() == texts.size();
  const bool all_numbers = numbers.size() == texts.size();
  if (!is_fixed) {
    if (!settings.has("loss")) check_texts(texts, numbers.size(), place);
    form.task = task_of_settings(settings).value_or(all_numbers && !all_integers ? Task::Numbers : Task::Classes);
  }
  if (form.task == Task::Numbers) {
    LOCKSTEP_CHECK_DATA(all_numbers, "[train] the target must be a number in all rows: ", place, ", ",
                        first_text(texts), "; correct it, or learn classes with --loss cross_entropy");
    const at::Tensor targets = torch::tensor(numbers, torch::kDouble).to(torch::kFloat).view({-1, 1});
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

}  // namespace

OpenedData open_csv(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  Table table;
  DataForm form = options.form.value_or(DataForm{.kind = "csv"});
  const std::string place = "file=\"" + paths[0] + "\"";
  LOCKSTEP_CHECK_VALUE(form.kind == "csv", "[train] the training data were no CSV files: ", place,
                       ", training=", form.kind);
  for (const std::string& path : paths) read_table(path, settings, options, table);
  const std::string& target = table.target;
  form.features = table.features;
  if (!options.form) form.target = target;
  if (!options.form && target.empty()) form.task = task_of_settings(settings).value_or(Task::Classes);
  const auto rows = static_cast<int64_t>(table.targets.size());
  const auto columns = static_cast<int64_t>(table.features.size());
  LOCKSTEP_CHECK_VALUE(columns > 0, "[train] there is no column beside the target: ", place);
  form.input_shape = shape_of_rows({columns}, settings, options, place);
  std::vector<int64_t> sizes = form.input_shape;
  sizes.insert(sizes.begin(), rows);
  const at::Tensor inputs = torch::tensor(table.numbers, torch::kDouble).view(sizes);
  const bool is_fixed = options.form.has_value();
  const at::Tensor targets =
      target.empty() ? no_targets(form, rows)
                     : parsed_targets(table.targets, form, settings, is_fixed, place + ", column=" + target);
  return tensors_as_data(std::move(form), inputs, targets);
}

}  // namespace lockstep::tools
