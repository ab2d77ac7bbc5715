#include "tests/golden/report.h"

#include <algorithm>
#include <iomanip>

#include "tests/golden/compare.h"
#include "tests/golden/differences.h"
#include "tests/golden/pages.h"

namespace lockstep::golden {
namespace {

std::string key_of(const std::string& topic, const std::string& rule) { return topic + ": " + rule; }

int count_of(const std::map<std::string, int>& counts, const std::string& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

void print_row(std::ostream& out, const std::string& topic, const std::vector<int>& numbers) {
  out << std::left << std::setw(28) << topic << std::right;
  for (int number : numbers) out << std::setw(9) << number;
  out << '\n';
}

}  // namespace

Result judge(const Case& test_case, const Driver& driver) {
  const Outcome outcome = run_driver(driver, test_case);
  if (outcome.kind == Outcome::Kind::NotYet) return {test_case, outcome, Verdict::NotYet, outcome.text};
  const auto difference = mismatch(test_case, outcome);
  if (!difference) return {test_case, outcome, Verdict::Pass, ""};
  const Difference* rule = find_difference(test_case);
  if (rule == nullptr) return {test_case, outcome, Verdict::Remain, *difference};
  if (const auto broken = rule->check(test_case, outcome)) {
    return {test_case, outcome, Verdict::Remain, "rule '" + rule->name + "': " + *broken};
  }
  return {test_case, outcome, Verdict::Differ, rule->name};
}

void Report::add(const Result& result) {
  const std::string& topic = result.test_case.topic;
  if (std::count(topics_.begin(), topics_.end(), topic) == 0) topics_.push_back(topic);
  ++counts_[topic][result.verdict];
  if (result.verdict == Verdict::NotYet) ++waiting_[result.note];
  if (result.verdict == Verdict::Differ) ++by_rule_[key_of(topic, result.note)];
}

int Report::total(Verdict verdict) const {
  int sum = 0;
  for (const auto& [topic, counts] : counts_) {
    const auto found = counts.find(verdict);
    if (found != counts.end()) sum += found->second;
  }
  return sum;
}

int Report::num_remaining() const { return total(Verdict::Remain); }

void Report::print_unused_rules(std::ostream& out) const {
  for (const Difference& rule : differences()) {
    const bool ran = std::count(topics_.begin(), topics_.end(), rule.topic) > 0;
    if (ran && count_of(by_rule_, key_of(rule.topic, rule.name)) == 0) {
      out << "rule without a case: " << key_of(rule.topic, rule.name) << '\n';
    }
  }
}

void Report::print(std::ostream& out, bool all_cases_run) const {
  out << std::left << std::setw(28) << "topic" << std::right << std::setw(9) << "pass" << std::setw(9) << "differ"
      << std::setw(9) << "remain" << std::setw(9) << "not yet" << '\n';
  for (const std::string& topic : topics_) {
    std::map<Verdict, int> counts = counts_.at(topic);
    print_row(out, topic,
              {counts[Verdict::Pass], counts[Verdict::Differ], counts[Verdict::Remain], counts[Verdict::NotYet]});
  }
  for (const auto& [what, count] : waiting_) out << "not yet: " << count << " cases of " << what << '\n';
  if (all_cases_run) print_unused_rules(out);
  out << "golden: " << total(Verdict::Pass) << " pass, " << total(Verdict::Differ) << " differ on purpose, "
      << total(Verdict::Remain) << " remain" << std::endl;
}

void Report::write_differences(std::ostream& out) const {
  out << "# Where lockstep differs from TensorFlow\n\n"
         "Printed by `lockstep_golden --write-differences`. The rules, and the checks that lockstep behaves as "
         "described, are\n"
         "in `tests/golden/differences.cpp` and `tests/golden/differences/`. In all other cases of "
         "`tests/golden/data`, lockstep\n"
         "gives TensorFlow's answers.\n";
  std::string topic;
  for (const Difference& rule : differences()) {
    if (rule.topic != topic) {
      topic = rule.topic;
      out << "\n## " << topic << "\n\n| what | TensorFlow | lockstep | why | cases |\n|---|---|---|---|---|\n";
    }
    out << "| " << rule.name << " | " << rule.tensorflow << " | " << rule.lockstep << " | " << rule.reason << " | "
        << count_of(by_rule_, key_of(rule.topic, rule.name)) << " |\n";
  }
  out << kFurtherDifferences << kPageOptions << kOtherNames << kParameterServers;
}

}  // namespace lockstep::golden
