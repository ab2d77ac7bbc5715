#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/golden/harness.h"

/// Where lockstep answers differently on purpose: one table, checked by the harness, printed into docs/differences.md.
///
/// A rule is no excuse for a wrong answer. It says which cases it is for, what lockstep answers there (`check` verifies
/// it) and why that is better.
namespace lockstep::golden {

/// Says why an outcome is not what the rule promises, or nothing.
using Check = std::function<std::optional<std::string>(const Case&, const Outcome&)>;

struct Difference {
  /// Short, unique in its topic.
  std::string name;
  std::string topic;
  /// Which cases, over their call and inputs.
  std::function<bool(const Case&)> applies;
  /// What TensorFlow answers, in words.
  std::string tensorflow;
  /// What lockstep answers, in words.
  std::string lockstep;
  std::string reason;
  Check check;
};

/// Returns the table.
const std::vector<Difference>& differences();

/// Returns the first rule that applies to a case, or null.
const Difference* find_difference(const Case& test_case);

/// Returns whether `text` is among `words`.
bool is_one_of(const std::string& text, std::initializer_list<std::string_view> words);

/// Makes a check that expects an error of this type whose message has `part` in it.
Check expect_error(std::string type, std::string part = "");

/// Makes a check that expects a value, computed from the case.
Check expect_value(std::function<Json(const Case&)> expected);

/// Makes a check that expects a call which C++'s types exclude.
Check expect_no_compile();

}  // namespace lockstep::golden
