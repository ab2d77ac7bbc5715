#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/print_result.h"

/// What a training of `lockstep train` depends on. One table has the names, types, defaults and descriptions, of which
/// the flags, the keys of configuration files and the plan of a run folder are made.
namespace lockstep::tools {

struct Setting {
  enum class Type { Text, Integer, Number, List };

  const char* name;
  Type type;
  /// What a value is, for help: "INT", "NAME"; several with "|" between them. Words in small letters are names that may
  /// be given, "FILE" and "FOLDER" are paths.
  const char* value;
  /// As text; empty: none, or one that follows from the data.
  const char* default_value;
  const char* description;
  /// Allowed words, separated by commas; empty: any.
  const char* choices = "";
  /// The least value of a number, and what it must be below.
  double least = 0;
  double below = std::numeric_limits<double>::infinity();
  /// The heading of help under which it is.
  const char* group = "";

  std::vector<std::string> allowed() const;
};

/// All settings, in the order in which they are printed.
const std::vector<Setting>& all_settings();
const Setting& setting_named(const std::string& name);

/// The flags that the user gave, by the names of settings.
using GivenFlags = std::map<std::string, std::vector<std::string>>;

/// Values by the names of settings. A cheap value.
class Settings {
 public:
  /// The values of flags. ValueError for texts that are no numbers, numbers out of range and words that are not
  /// allowed.
  static Settings from_flags(const GivenFlags& flags);
  /// The values of a configuration file or a plan; `place` names it in errors. Keys may have `_` in place of `-`.
  /// ValueError for unknown keys, with the nearest one, for keys that are given twice, and for values of other types.
  static Settings from_json(const Json& values, const std::string& place);

  /// Adds the values of `others` for settings that have none here.
  void add_missing(const Settings& others);
  /// Adds the defaults.
  void add_defaults();
  void set(const std::string& name, Json value) { values_[name] = std::move(value); }

  bool has(const std::string& name) const { return values_.contains(name); }
  /// Each returns a value; ValueError where it is missing.
  std::string text(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  /// Empty where it is missing.
  std::vector<std::string> list(const std::string& name) const;
  std::optional<std::string> find_text(const std::string& name) const;
  std::optional<int64_t> find_integer(const std::string& name) const;
  std::optional<double> find_number(const std::string& name) const;
  /// The values of a list of numbers.
  std::vector<int64_t> integers(const std::string& name) const;

  const Json& json() const { return values_; }

 private:
  const Json& at(const std::string& name) const;

  Json values_ = Json::object();
};

/// Reads a TOML file (.toml) or a JSON file (.json). ValueError with the place of a mistake.
Json read_config(const std::string& path);

/// Internal: the part of it for TOML.
Json read_toml(const std::string& path);

/// Returns the numbers of "3x32x32" or "32,32". ValueError for another text; `what` names it.
std::vector<int64_t> parse_sizes(const std::string& text, const std::string& what);

}  // namespace lockstep::tools
