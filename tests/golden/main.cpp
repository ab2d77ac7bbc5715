// Runs TensorFlow's answers against lockstep: lockstep_golden [DIR] [options].

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/log.h"
#include "tests/golden/drivers.h"
#include "tests/golden/harness.h"
#include "tests/golden/report.h"
#include "tests/golden/worker_processes.h"

namespace lockstep::golden {
namespace {

constexpr const char* kUsage =
    "usage: lockstep_golden [DIR] [--topic TOPIC]... [--id PATTERN] [--failures] [--verbose] [--write-differences "
    "FILE] [--check-differences FILE]\n"
    "  DIR                       folder of TOPIC.json files; without it, the answers in the repository\n"
    "  --topic TOPIC             only this topic; may be repeated\n"
    "  --id PATTERN              only cases whose id has a match of this regular expression\n"
    "  --failures                print each remaining case: what was expected and what came back\n"
    "  --verbose                 print each case, before it runs and after\n"
    "  --write-differences FILE  write what differs on purpose as a page\n"
    "  --check-differences FILE  fail if that page is not equal to FILE\n";

struct Options {
  std::string directory = LOCKSTEP_GOLDEN_DATA;
  std::vector<std::string> topics;
  std::optional<std::string> id;
  std::string differences_file;
  std::string checked_file;
  bool failures = false;
  bool verbose = false;
};

/// Returns what the command line says, or nothing when it is wrong.
std::optional<Options> read_options(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_next = i + 1 < arguments.size();
    if (argument == "--failures") {
      options.failures = true;
    } else if (argument == "--verbose") {
      options.verbose = true;
    } else if (argument == "--topic" && has_next) {
      options.topics.push_back(arguments[++i]);
    } else if (argument == "--id" && has_next) {
      options.id = arguments[++i];
    } else if (argument == "--write-differences" && has_next) {
      options.differences_file = arguments[++i];
    } else if (argument == "--check-differences" && has_next) {
      options.checked_file = arguments[++i];
    } else if (!argument.starts_with("-")) {
      options.directory = argument;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

bool is_chosen(const Options& options, const Topic& topic) {
  if (options.topics.empty()) return true;
  return std::count(options.topics.begin(), options.topics.end(), topic.name) > 0;
}

/// Returns what is wrong with the options, or "".
std::string fault(const Options& options) {
  if (!std::filesystem::is_directory(options.directory)) return "there is no folder " + options.directory;
  for (const std::string& name : options.topics) {
    const bool known = std::any_of(topics().begin(), topics().end(), [&](const Topic& t) { return t.name == name; });
    if (!known) return "there is no topic " + name;
  }
  return "";
}

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"pass", "differ", "REMAIN", "not yet"};
  return kNames[static_cast<int>(verdict)];
}

void print_failure(const Result& result) {
  const Case& one = result.test_case;
  std::cout << one.topic << ' ' << one.id << "\n  call      " << one.call << ' ' << one.in.dump() << "\n  expected  "
            << (one.has_error() ? one.error_type + ": " + one.error_message : one.out.dump()) << "\n  got       "
            << result.outcome.describe() << "\n  because   " << result.note << '\n';
}

void run_topic(const Options& options, const Topic& topic, Report& report) {
  const std::filesystem::path path = std::filesystem::path(options.directory) / (std::string(topic.name) + ".json");
  if (!std::filesystem::exists(path)) return;
  const std::regex id(options.id.value_or(""));
  for (const Case& one : load_cases(path.string())) {
    if (options.id && !std::regex_search(one.id, id)) continue;
    if (options.verbose) std::cout << one.topic << ' ' << one.id << ": " << std::flush;
    const Result result = judge(one, topic.run);
    if (options.verbose)
      std::cout << name_of(result.verdict) << (result.note.empty() ? "" : ", ") << result.note << '\n';
    if (options.failures && result.verdict == Verdict::Remain) print_failure(result);
    report.add(result);
  }
}

/// Whether a file is the page of differences.
bool is_page(const Report& report, const std::string& path) {
  std::ostringstream page;
  report.write_differences(page);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text == page.str();
}

int run(const Options& options) {
  log::set_level(log::Level::Error);  // many cases are about calls that log a warning
  Report report;
  for (const Topic& topic : topics()) {
    if (is_chosen(options, topic)) run_topic(options, topic, report);
  }
  if (!options.differences_file.empty()) {
    std::ofstream file(options.differences_file);
    report.write_differences(file);
  }
  report.print(std::cout, /*all_cases_run=*/!options.id);
  const bool is_equal = options.checked_file.empty() || is_page(report, options.checked_file);
  if (!is_equal) std::cout << options.checked_file << " is not what --write-differences writes\n";
  return report.num_remaining() > 0 || !is_equal ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::golden

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string(lockstep::golden::kWorkerArgument)) {
    lockstep::golden::answer_as_worker(lockstep::golden::drivers::multi_worker::run_on_worker);
    return 0;
  }
  const auto options = lockstep::golden::read_options(std::vector<std::string>(argv + 1, argv + argc));
  if (!options) {
    std::cerr << lockstep::golden::kUsage;
    return 2;
  }
  if (const std::string wrong = lockstep::golden::fault(*options); !wrong.empty()) {
    std::cerr << "lockstep_golden: " << wrong << '\n';
    return 2;
  }
  return lockstep::golden::run(*options);
}
