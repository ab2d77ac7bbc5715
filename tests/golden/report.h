#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/golden/harness.h"

namespace lockstep::golden {

enum class Verdict {
  /// As TensorFlow.
  Pass,
  /// As a rule of differences.h promises.
  Differ,
  /// Neither: something is to be done.
  Remain,
  /// Waits for a strategy or call that is not built.
  NotYet,
};

/// A case with what became of it.
struct Result {
  Case test_case;
  Outcome outcome;
  Verdict verdict;
  /// The rule, what is missing, or why it remains.
  std::string note;
};

/// Runs one case and judges the answer.
Result judge(const Case& test_case, const Driver& driver);

/// Counts results, and prints them.
class Report {
 public:
  void add(const Result& result);

  /// Prints the table of topics, what is not built yet, when all cases ran the rules that met none, and the last line.
  void print(std::ostream& out, bool all_cases_run) const;

  /// Writes docs/differences.md: the table of differences with the number of cases of each rule, and what lockstep
  /// leaves out.
  void write_differences(std::ostream& out) const;

  int num_remaining() const;

 private:
  int total(Verdict verdict) const;
  void print_unused_rules(std::ostream& out) const;

  std::vector<std::string> topics_;
  std::map<std::string, std::map<Verdict, int>> counts_;
  std::map<std::string, int> waiting_;
  std::map<std::string, int> by_rule_;
};

}  // namespace lockstep::golden
