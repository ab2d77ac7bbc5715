#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

/// Runs TensorFlow's answers (data/README.md has their format) against lockstep.
///
/// A topic is a file of cases; its driver makes the same call in lockstep and returns what came back. The harness
/// compares (compare.h) and knows what is answered differently on purpose (differences.h).
namespace lockstep::golden {

using Json = nlohmann::json;

/// One call of TensorFlow.
struct Case {
  std::string topic;
  std::string id;
  std::string call;
  /// The fields of the call's inputs.
  Json in;
  /// What TensorFlow returned; only where `error_type` is empty.
  Json out;
  /// The Python exception that TensorFlow raised, or "Crash", or empty.
  std::string error_type;
  std::string error_message;

  bool has_error() const { return !error_type.empty(); }

  /// Returns the field `name` of the inputs as text, or "" where it is left out or is no text.
  std::string text(std::string_view name) const;
  /// Returns the field `name` of the inputs, or null where it is left out.
  Json field(std::string_view name) const;
};

/// What lockstep answered.
struct Outcome {
  enum class Kind {
    /// `value` came back.
    Value,
    /// An exception: `type` as `run_driver` names it, `text` its message.
    Error,
    /// C++'s types exclude the call, so there is nothing to run; `text` says why.
    DoesNotCompile,
    /// The driver cannot do this yet; `text` says what is missing.
    NotYet,
  };

  Kind kind = Kind::Value;
  Json value;
  std::string type;
  std::string text;

  static Outcome of_value(Json value);
  static Outcome of_error(std::string type, std::string message);
  static Outcome does_not_compile(std::string why);
  static Outcome not_yet(std::string what);

  /// Returns the outcome as it stands among the answers of several workers: the value, or `{"error": ...}`.
  Json as_answer_of_worker() const;

  /// Returns the outcome as a line for people.
  std::string describe() const;
};

/// Thrown by a driver for a call that C++'s types exclude.
struct DoesNotCompile : std::runtime_error {
  using runtime_error::runtime_error;
};

/// Thrown where a driver meets something in the data that it does not know.
struct HarnessError : std::runtime_error {
  using runtime_error::runtime_error;
};

/// Answers one case. What it throws is an answer too.
using Driver = std::function<Outcome(const Case&)>;

/// Reads all cases of a topic's file.
std::vector<Case> load_cases(const std::string& path);

/// Calls the driver and makes an outcome of whatever it throws.
///
/// `type` becomes the most derived of ValueError, TypeError, IndexError, NotImplementedError, ContextError,
/// CollectiveError, InternalError, Error (any other `c10::Error`), std::exception; "Harness" where the driver misread
/// the case.
Outcome run_driver(const Driver& driver, const Case& test_case);

}  // namespace lockstep::golden
