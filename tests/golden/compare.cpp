#include "tests/golden/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace lockstep::golden {
namespace {

/// Which of lockstep's errors stand for one of Python's.
struct ErrorKind {
  std::string_view python;
  std::array<std::string_view, 5> ours;
};

// TensorFlow raises ValueError and RuntimeError for a wrong argument, a wrong place and for replicas that disagree
// alike.
constexpr std::array kErrorKinds{
    ErrorKind{"ValueError", {"ValueError", "IndexError", "TypeError", "CollectiveError", "ContextError"}},
    ErrorKind{"AssertionError", {"ValueError", "IndexError", "TypeError", "CollectiveError"}},
    ErrorKind{"InvalidArgumentError", {"ValueError", "IndexError", "TypeError", "CollectiveError"}},
    ErrorKind{"TypeError", {"TypeError", "ValueError"}},
    ErrorKind{"RuntimeError", {"ContextError", "CollectiveError", "ValueError"}},
    ErrorKind{"NotImplementedError", {"NotImplementedError"}},
    ErrorKind{"FailedPreconditionError", {"ContextError", "ValueError"}},
    ErrorKind{"JSONDecodeError", {"ValueError"}},
    ErrorKind{"NotFoundError", {"ValueError"}},          // no files to shard
    ErrorKind{"ZeroDivisionError", {"std::exception"}},  // thrown by the user's function, passed on as it is
};

// Python's own errors from inside TensorFlow: nobody meant them.
constexpr std::array<std::string_view, 6> kAccidents{"AttributeError", "IndexError", "UnboundLocalError",
                                                     "KeyError",       "NameError",  "Crash"};
constexpr std::array<std::string_view, 7> kAccidentalTypeErrors{"unhashable type",
                                                                "object is not",
                                                                "has no len()",
                                                                "not supported between instances",
                                                                "positional arguments",
                                                                "unsupported operand type",
                                                                "argument must be a string or a real number"};

bool is_accidental_type(std::string_view python) {
  return std::count(kAccidents.begin(), kAccidents.end(), python) > 0;
}

bool is_accident(const Case& test_case) {
  if (is_accidental_type(test_case.error_type)) return true;
  return test_case.error_type == "TypeError" &&
         std::any_of(kAccidentalTypeErrors.begin(), kAccidentalTypeErrors.end(),
                     [&](std::string_view part) { return test_case.error_message.find(part) != std::string::npos; });
}

bool stands_for(std::string_view ours, std::string_view python) {
  const auto* kind =
      std::find_if(kErrorKinds.begin(), kErrorKinds.end(), [&](const auto& k) { return k.python == python; });
  return kind != kErrorKinds.end() && std::count(kind->ours.begin(), kind->ours.end(), ours) > 0;
}

std::optional<std::string> error_mismatch(const Case& test_case, const Outcome& outcome) {
  if (outcome.kind == Outcome::Kind::DoesNotCompile) return std::nullopt;
  if (outcome.kind == Outcome::Kind::Value) return "an error was expected";
  if (is_accident(test_case)) {
    if (is_clear_error(outcome)) return std::nullopt;
    return "the error is not clear";
  }
  if (stands_for(outcome.type, test_case.error_type)) return std::nullopt;
  return "the kind of error differs";
}

bool is_tensor(const Json& value) { return value.is_object() && value.contains("dtype") && value.contains("data"); }

double tolerance_of(const std::string& dtype, double float32_tolerance) {
  if (dtype == "float16") return 1e-3;
  if (dtype == "bfloat16") return 1e-2;
  if (dtype == "float64") return std::min(float32_tolerance, 1e-12);
  return dtype == "float32" || dtype == "complex64" ? float32_tolerance : 0.0;
}

/// Reads a number, where text stands for those that JSON lacks.
std::optional<double> number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::nan("");
  if (value == "Infinity") return HUGE_VAL;
  if (value == "-Infinity") return -HUGE_VAL;
  return std::nullopt;
}

bool close(double expected, double actual, double tolerance) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return expected == actual;
  // The second term is for results that should be zero.
  return std::abs(expected - actual) <= tolerance * std::max(std::abs(expected), std::abs(actual)) + tolerance * 1e-3;
}

std::string show(const Json& value) {
  const std::string text = value.dump();
  return text.size() <= 200 ? text : text.substr(0, 200) + "…";
}

std::optional<std::string> differs(const std::string& path, const Json& expected, const Json& actual) {
  return "at " + (path.empty() ? "the top" : path) + ": expected " + show(expected) + ", got " + show(actual);
}

std::optional<std::string> compare(const Json& expected, const Json& actual, double tolerance, const std::string& path);

std::optional<std::string> compare_tensors(const Json& expected, const Json& actual, double tolerance,
                                           const std::string& path) {
  const bool same_kind = is_tensor(actual) && expected["dtype"] == actual["dtype"] &&
                         expected.value("shape", Json()) == actual.value("shape", Json());
  if (!same_kind) return differs(path, expected, actual);
  return compare(expected["data"], actual["data"], tolerance_of(expected["dtype"], tolerance), path + ".data");
}

std::optional<std::string> compare_objects(const Json& expected, const Json& actual, double tolerance,
                                           const std::string& path) {
  if (!actual.is_object() || expected.size() != actual.size()) return differs(path, expected, actual);
  for (const auto& [key, value] : expected.items()) {
    if (!actual.contains(key)) return differs(path, expected, actual);
    if (auto found = compare(value, actual[key], tolerance, path + "." + key)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> compare_arrays(const Json& expected, const Json& actual, double tolerance,
                                          const std::string& path) {
  if (!actual.is_array() || expected.size() != actual.size()) return differs(path, expected, actual);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (auto found = compare(expected[i], actual[i], tolerance, path + "[" + std::to_string(i) + "]")) return found;
  }
  return std::nullopt;
}

/// One worker's error among the answers of several.
bool is_error(const Json& value) { return value.is_object() && value.size() == 1 && value.contains("error"); }

std::optional<std::string> compare(const Json& expected, const Json& actual, double tolerance,
                                   const std::string& path) {
  if (is_error(expected)) {
    const std::string python = expected["error"].at("type");
    const bool same = is_error(actual) &&
                      (is_accidental_type(python) || stands_for(actual["error"].at("type").get<std::string>(), python));
    return same ? std::nullopt : differs(path, expected, actual);
  }
  if (is_tensor(expected)) return compare_tensors(expected, actual, tolerance, path);
  if (expected.is_object()) return compare_objects(expected, actual, tolerance, path);
  if (expected.is_array()) return compare_arrays(expected, actual, tolerance, path);
  if (expected == actual) return std::nullopt;
  if (expected.is_number_integer() && actual.is_number_integer()) return differs(path, expected, actual);
  const auto left = number(expected);
  const auto right = number(actual);
  if (left && right && close(*left, *right, tolerance)) return std::nullopt;
  return differs(path, expected, actual);
}

}  // namespace

bool is_clear_error(const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::Error || outcome.type == "Harness" || outcome.type == "InternalError")
    return false;
  return outcome.type != "std::exception" || outcome.text.starts_with('[');
}

std::optional<std::string> mismatch(const Json& expected, const Json& actual, double tolerance) {
  return compare(expected, actual, tolerance, "");
}

std::optional<std::string> mismatch(const Case& test_case, const Outcome& outcome) {
  if (test_case.has_error()) return error_mismatch(test_case, outcome);
  if (outcome.kind != Outcome::Kind::Value) return "a value was expected";
  return mismatch(test_case.out, outcome.value, test_case.topic == "training" ? 1e-4 : 1e-6);
}

}  // namespace lockstep::golden
