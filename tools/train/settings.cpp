#include "tools/train/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "tools/command/nearest.h"

namespace lockstep::tools {
namespace {

template <class T>
T parse_number(const std::string& text, const std::string& place, const char* kind) {
  T number{};
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  LOCKSTEP_CHECK_VALUE(read.ec == std::errc() && read.ptr == end && !text.empty(), "[train] ", place, " must be ", kind,
                       ": value=", text);
  return number;
}

void check_word(const std::string& word, const Setting& setting, const std::string& place) {
  const auto allowed = setting.allowed();
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), word) != allowed.end()) return;
  LOCKSTEP_THROW(c10::ValueError, "[train] ", place, " must be ", enumeration(allowed, "or"), ": value=", word,
                 did_you_mean(word, allowed));
}

/// Checks a value of the right type; `place` is "--epochs" or "epochs of FILE".
Json checked(Json value, const Setting& setting, const std::string& place) {
  if (value.is_number()) {
    LOCKSTEP_CHECK_VALUE(value.get<double>() >= setting.least, "[train] ", place, " must be at least ", setting.least,
                         ": value=", value.dump());
    const bool is_open = std::isinf(setting.below);
    LOCKSTEP_CHECK_VALUE(value.get<double>() < setting.below, "[train] ", place, " must be ",
                         is_open ? "finite" : c10::str("below ", setting.below),
                         ": value=", is_open ? "inf" : value.dump());
  } else if (value.is_string()) {
    check_word(value.get<std::string>(), setting, place);
  } else {
    for (const auto& each : value) check_word(each.get<std::string>(), setting, place);
  }
  return value;
}

Json from_texts(const std::vector<std::string>& texts, const Setting& setting, const std::string& place) {
  if (setting.type == Setting::Type::List) return checked(texts, setting, place);
  LOCKSTEP_CHECK_VALUE(texts.size() == 1, "[train] ", place, " takes one value: values=", enumeration(texts));
  switch (setting.type) {
    case Setting::Type::Integer:
      return checked(parse_number<int64_t>(texts[0], place, "an integer"), setting, place);
    case Setting::Type::Number:
      return checked(parse_number<double>(texts[0], place, "a number"), setting, place);
    default:
      return checked(texts[0], setting, place);
  }
}

/// Numbers are allowed where texts are: `validation = 0.2`, `hidden = [64, 32]`.
std::string text_of_json(const Json& value, const std::string& place) {
  LOCKSTEP_CHECK_VALUE(value.is_string() || value.is_number(), "[train] ", place,
                       " must be a text or a number: value=", value.dump());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json from_config(const Json& value, const Setting& setting, const std::string& place) {
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const Json& each : value) texts.push_back(text_of_json(each, place));
    LOCKSTEP_CHECK_VALUE(setting.type == Setting::Type::List, "[train] ", place, " takes one value, not a list");
  } else {
    texts.push_back(text_of_json(value, place));
  }
  const bool wants_number = setting.type == Setting::Type::Integer || setting.type == Setting::Type::Number;
  LOCKSTEP_CHECK_VALUE(!wants_number || value.is_number(), "[train] ", place,
                       " must be a number: value=", value.dump());
  return from_texts(texts, setting, place);
}

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : all_settings()) names.emplace_back(setting.name);
  return names;
}

}  // namespace

Settings Settings::from_flags(const GivenFlags& flags) {
  Settings settings;
  for (const auto& [name, texts] : flags) {
    settings.values_[name] = from_texts(texts, setting_named(name), "--" + name);
  }
  return settings;
}

Settings Settings::from_json(const Json& values, const std::string& place) {
  LOCKSTEP_CHECK_VALUE(values.is_object(), "[train] settings must be an object of names and values: ", place);
  Settings settings;
  const auto names = setting_names();
  for (const auto& [key, value] : values.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string similar = did_you_mean(name, names);
      LOCKSTEP_THROW(c10::ValueError, "[train] an unknown key: ", place, ", key=", key,
                     similar.empty() ? "; known keys are " + enumeration(names) : similar);
    }
    LOCKSTEP_CHECK_VALUE(!settings.has(name), "[train] a key is given twice, with - and with _: ", place, ", key=", key,
                         "; leave one of them out");
    settings.values_[name] = from_config(value, setting_named(name), name + " of " + place);
  }
  return settings;
}

void Settings::add_missing(const Settings& others) {
  for (const auto& [name, value] : others.values_.items()) {
    if (!has(name)) values_[name] = value;
  }
}

void Settings::add_defaults() {
  for (const Setting& setting : all_settings()) {
    if (!has(setting.name) && *setting.default_value != '\0') {
      values_[setting.name] = from_texts({setting.default_value}, setting, setting.name);
    }
  }
}

const Json& Settings::at(const std::string& name) const {
  LOCKSTEP_CHECK_VALUE(has(name), "[train] --", name, " is missing: ", setting_named(name).description);
  return values_.at(name);
}

std::string Settings::text(const std::string& name) const { return at(name).get<std::string>(); }
int64_t Settings::integer(const std::string& name) const { return at(name).get<int64_t>(); }
double Settings::number(const std::string& name) const { return at(name).get<double>(); }

std::vector<std::string> Settings::list(const std::string& name) const {
  return has(name) ? at(name).get<std::vector<std::string>>() : std::vector<std::string>();
}
std::optional<std::string> Settings::find_text(const std::string& name) const {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}
std::optional<int64_t> Settings::find_integer(const std::string& name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}
std::optional<double> Settings::find_number(const std::string& name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}
std::vector<int64_t> Settings::integers(const std::string& name) const {
  std::vector<int64_t> numbers;
  for (const std::string& text : list(name)) {
    numbers.push_back(parse_number<int64_t>(text, "--" + name, "a list of integers"));
    LOCKSTEP_CHECK_VALUE(numbers.back() > 0, "[train] --", name, " must be above 0: value=", text);
  }
  return numbers;
}

Json read_config(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".toml") return read_toml(path);
  LOCKSTEP_CHECK_VALUE(extension == ".json", "[train] a configuration is a .toml or .json file: file=\"", path, "\"");
  std::ifstream file(path);
  LOCKSTEP_CHECK_DATA(file.good(), "[train] the file must be readable: file=\"", path, "\"");
  // Keys of objects that are open: a parser would take the last of equal ones.
  std::vector<std::set<std::string>> keys;
  const auto check_keys = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    LOCKSTEP_CHECK_VALUE(event != Json::parse_event_t::key || keys.back().insert(parsed.get<std::string>()).second,
                         "[train] a key is given twice: file=\"", path, "\", key=", parsed.dump(),
                         "; leave one of them out");
    return true;
  };
  try {
    return Json::parse(file, check_keys);
  } catch (const Json::exception& error) {
    LOCKSTEP_THROW(DataError, "[train] the file is no JSON: file=\"", path, "\", ", error.what());
  }
}

std::vector<int64_t> parse_sizes(const std::string& text, const std::string& what) {
  std::vector<int64_t> sizes;
  std::string spaced = text;
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return c == 'x' || c == ','; }, ' ');
  std::istringstream words(spaced);
  for (std::string word; words >> word;) sizes.push_back(parse_number<int64_t>(word, what, "sizes, such as 3x32x32"));
  LOCKSTEP_CHECK_VALUE(!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) > 0, "[train] ", what,
                       " must be sizes above 0, such as 3x32x32: value=", text);
  return sizes;
}

}  // namespace lockstep::tools
