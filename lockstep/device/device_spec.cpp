#include "lockstep/device/device_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/process_task.h"

namespace lockstep {
namespace {

struct ShortType {
  std::string_view spelling;
  std::string_view type;
};

constexpr std::array kShortTypes{ShortType{"CPU", "CPU"}, ShortType{"GPU", "GPU"}, ShortType{"TPU", "TPU"},
                                 ShortType{"CUDA", "GPU"}};

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::optional<std::string> type_of_short_form(std::string_view word) {
  const std::string capitals = upper(word);
  for (const ShortType& known : kShortTypes) {
    if (capitals == known.spelling) return std::string(known.type);
  }
  return std::nullopt;
}

std::string normal_type(std::string type) { return type == "cpu" || type == "gpu" ? upper(type) : type; }

/// Reads the components of one string into a spec.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  DeviceSpec parse() {
    for (std::string_view component : split(text_, '/')) {
      if (!component.empty()) add(component);
    }
    return spec_;
  }

 private:
  void add(std::string_view component) {
    const std::vector<std::string_view> words = split(component, ':');
    const std::string_view key = words[0];
    if (words.size() == 2 && key == "job") {
      spec_ = spec_.with_job(std::string(words[1]));
    } else if (words.size() == 2 && key == "replica") {
      spec_ = spec_.with_replica(number(words[1], component));
    } else if (words.size() == 2 && key == "task") {
      spec_ = spec_.with_task(number(words[1], component));
    } else if (words.size() == 3 && key == "device") {
      add_device(std::string(words[1]), words[2], component);
    } else if (auto type = type_of_short_form(key); type && words.size() <= 2) {
      add_device(*type, words.size() == 2 ? words[1] : "*", component);
    } else {
      fail(
          "a component must be job:NAME, replica:N, task:N, device:TYPE:N, or one of cpu, gpu, tpu, cuda with or "
          "without :N",
          component);
    }
  }

  void add_device(std::string type, std::string_view index, std::string_view component) {
    if (spec_.type()) fail("a device string names at most one device", component);
    spec_ = spec_.with_type(std::move(type));
    if (index != "*") spec_ = spec_.with_index(number(index, component));
  }

  int number(std::string_view word, std::string_view component) const {
    int value = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (problem == std::errc::result_out_of_range) fail("a number in a device string must fit 32 bits", component);
    if (problem != std::errc() || end != word.data() + word.size()) fail("expected a whole number", component);
    return value;
  }

  [[noreturn]] void fail(std::string_view rule, std::string_view component) const {
    LOCKSTEP_THROW(c10::ValueError, "[DeviceSpec::parse] ", rule, ": component='", component, "', string='", text_,
                   "'");
  }

  std::string_view text_;
  DeviceSpec spec_;
};

DeviceSpec default_spec(MissingJob missing_job) {
  const DeviceSpec spec = DeviceSpec().with_replica(0).with_task(0).with_type("CPU").with_index(0);
  if (missing_job == MissingJob::LeftOut) return spec;
  const ProcessTask own = process_task();
  return spec.with_job(own.job).with_task(own.task);
}

/// Parses what is to be canonicalised, where types are in capitals.
DeviceSpec parse_strictly(std::string_view device) {
  DeviceSpec spec = DeviceSpec::parse(device);
  LOCKSTEP_CHECK_VALUE(!spec.type() || *spec.type() == upper(*spec.type()),
                       "[canonicalize] a device type must be in capitals: type='", spec.type().value_or(""),
                       "', string='", device, "'; write '", upper(spec.type().value_or("")), "'");
  return spec;
}

}  // namespace

DeviceSpec DeviceSpec::parse(std::string_view text) { return Parser(text).parse(); }

DeviceSpec DeviceSpec::with_job(std::optional<std::string> job) const {
  DeviceSpec result = *this;
  result.job_ = std::move(job);
  return result;
}

DeviceSpec DeviceSpec::with_replica(std::optional<int> replica) const {
  DeviceSpec result = *this;
  result.replica_ = replica;
  return result;
}

DeviceSpec DeviceSpec::with_task(std::optional<int> task) const {
  DeviceSpec result = *this;
  result.task_ = task;
  return result;
}

DeviceSpec DeviceSpec::with_type(std::optional<std::string> type) const {
  DeviceSpec result = *this;
  result.type_ = type ? std::optional(normal_type(*std::move(type))) : std::nullopt;
  return result;
}

DeviceSpec DeviceSpec::with_index(std::optional<int> index) const {
  DeviceSpec result = *this;
  result.index_ = index;
  return result;
}

DeviceSpec DeviceSpec::merged_with(const DeviceSpec& override) const {
  DeviceSpec result = *this;
  if (override.job_) result.job_ = override.job_;
  if (override.replica_) result.replica_ = override.replica_;
  if (override.task_) result.task_ = override.task_;
  if (override.type_) result.type_ = override.type_;
  if (override.index_) result.index_ = override.index_;
  return result;
}

std::string DeviceSpec::to_string() const {
  std::ostringstream out;
  if (job_) out << "/job:" << *job_;
  if (replica_) out << "/replica:" << *replica_;
  if (task_) out << "/task:" << *task_;
  if (type_) out << "/device:" << *type_ << ':' << (index_ ? std::to_string(*index_) : "*");
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const DeviceSpec& spec) { return out << spec.to_string(); }

std::string canonicalize(std::string_view device, std::string_view fallback, MissingJob missing_job) {
  return default_spec(missing_job)
      .merged_with(parse_strictly(fallback))
      .merged_with(parse_strictly(device))
      .to_string();
}

std::string canonicalize_without_job_and_task(std::string_view device) {
  return default_spec(MissingJob::LeftOut)
      .merged_with(parse_strictly(device))
      .with_job(std::nullopt)
      .with_replica(0)
      .with_task(std::nullopt)
      .to_string();
}

std::string host_for_device(std::string_view device) {
  return DeviceSpec::parse(device).with_type("CPU").with_index(0).to_string();
}

}  // namespace lockstep
