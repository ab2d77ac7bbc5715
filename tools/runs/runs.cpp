#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include "lockstep/base/error.h"
#include "tools/print_result.h"
#include "tools/runs/run_finder.h"
#include "tools/runs/run_reader.h"
#include "tools/runs/runs_tables.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

/// All runs at these paths, the oldest first. ValueError where a path has none. Those that cannot be read are named on
/// standard error and left out.
std::vector<RunRecord> records_at(const std::vector<std::string>& paths) {
  std::vector<std::string> folders;
  for (const std::string& path : paths) {
    LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(path), "[runs] there is no such folder: folder=", path);
    LOCKSTEP_CHECK_VALUE(add_run_folders(path, folders) > 0, "[runs] there is no run folder below: folder=", path);
  }
  std::vector<RunRecord> records;
  for (const std::string& folder : folders) {
    try {
      records.push_back(read_run(folder));
    } catch (const c10::Error& error) {
      std::cerr << one_line(error.what_without_backtrace()) << '\n';
    }
  }
  std::stable_sort(records.begin(), records.end(), [](const RunRecord& a, const RunRecord& b) {
    return a.run.value("created", "") < b.run.value("created", "");
  });
  return records;
}

void add_runs_list(CLI::App& runs) {
  auto* command = runs.add_subcommand("list", "List runs: state, strategy, epochs, best loss and accuracy, time");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, "Run folders, or folders that contain some; without one: runs");
  command->add_flag("--json", *json, "Print one JSON object per run");
  command->callback([=] {
    const auto records = records_at(paths->empty() ? std::vector<std::string>{"runs"} : *paths);
    if (!*json) return print_runs(records, std::cout);
    for (const RunRecord& record : records) print_result(summary_of_run(record), ResultStyle::Json);
  });
}

void add_runs_show(CLI::App& runs) {
  auto* command =
      runs.add_subcommand("show", "Show how runs were made: command, configuration, versions, environment; last logs");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, "Run folders")->required();
  command->add_flag("--json", *json, "Print one JSON object per run");
  command->callback([=] {
    const char* separator = "";
    for (const std::string& path : *paths) {
      const RunRecord record = read_run(path);
      if (*json) {
        print_result(run_details(record), ResultStyle::Json);
        continue;
      }
      std::cout << separator;
      print_run(record, std::cout);
      separator = "\n";
    }
  });
}

void add_runs_compare(CLI::App& runs) {
  auto* command = runs.add_subcommand("compare",
                                      "Show where runs differ: configuration, versions, environment; and "
                                      "their final and best logs");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *paths, "Run folders, or folders that contain some")->required();
  command->add_flag("--json", *json, "Print one JSON object per difference, with a value for each run");
  command->callback([=] {
    const auto records = records_at(*paths);
    LOCKSTEP_CHECK_VALUE(!records.empty(), "[runs] no run can be read: folders=", paths->size());
    if (!*json) return print_comparison(records, std::cout);
    Json folders = Json::array();
    for (const RunRecord& record : records) folders.push_back(record.path);
    print_result({{"what", "folder"}, {"values", std::move(folders)}}, ResultStyle::Json);
    for (const Json& row : compare_runs(records)) print_result(row, ResultStyle::Json);
  });
}

}  // namespace

void add_runs(CLI::App& app) {
  auto* runs = app.add_subcommand("runs", "List, show and compare run folders of trainings");
  runs->require_subcommand(1);
  add_runs_list(*runs);
  add_runs_show(*runs);
  add_runs_compare(*runs);
}

}  // namespace lockstep::tools
