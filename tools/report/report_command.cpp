#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/base/error.h"
#include "tools/print_result.h"
#include "tools/report/report_page.h"
#include "tools/runs/run_finder.h"
#include "tools/subcommands.h"

extern char** environ;

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

struct ReportRequest {
  std::vector<std::string> folders;
  std::string output = "report.html";
  bool open = false;
  bool json = false;
};

/// Writes a file that is whole or not there: beside its name, then renamed.
void write_page(const std::string& path, const std::string& text) {
  std::error_code none;
  const fs::file_status status = fs::symlink_status(path, none);
  LOCKSTEP_CHECK_VALUE(!fs::exists(status) || (fs::is_regular_file(status) && fs::path(path).extension() == ".html"),
                       "[lockstep report] only an .html file is replaced: file=", path, "; name another file with -o");
  const std::string partial = path + ".partial-" + std::to_string(getpid());
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  const bool is_written = stream.good() && std::rename(partial.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!is_written) std::remove(partial.c_str());
  LOCKSTEP_CHECK_VALUE(is_written, "[lockstep report] the report must be writable: file=", path, ", ",
                       std::strerror(error), "; name another file with -o");
}

/// Shows the page on the desktop. Returns why not, or nothing.
std::string open_page(const std::string& path) {
  const auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (!is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY")) return "there is no desktop here (DISPLAY is not set)";
  std::string program = "xdg-open";
  std::string file = fs::absolute(path).string();
  char* words[] = {program.data(), file.data(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), &quiet, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (error != 0) return program + ": " + std::strerror(error);
  // It may stay for as long as the browser does: only a failure at once is told.
  for (int tenths = 0; tenths < 20; ++tenths) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended != 0) return ended == child && status == 0 ? "" : program + " failed";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return "";
}

/// Exits with 1 when a folder is no run; the report has the others then.
void write_report(const ReportRequest& request) {
  std::vector<std::string> folders;
  std::vector<std::string> problems;
  for (const std::string& folder : request.folders) {
    if (add_run_folders(folder, folders) > 0) continue;
    const std::string why =
        fs::is_directory(folder) ? "it has no run.json, metrics.jsonl or steps.jsonl" : "there is no such folder";
    problems.push_back(reports::valid_text(folder) + " is not the folder of a run: " + why);
  }
  for (const std::string& problem : problems) std::cerr << "[lockstep report] " << problem << '\n';
  LOCKSTEP_CHECK_VALUE(!folders.empty(), "[lockstep report] no run to report: folders=", request.folders.size(),
                       "; name folders that callbacks::run_folder or `lockstep train` has written");
  const reports::Report made = reports::make_report(folders, problems);
  const std::string page = reports::render_page(made);
  write_page(request.output, page);
  Json result{{"report", fs::absolute(request.output).lexically_normal().string()}, {"bytes", page.size()}};
  result.update(reports::figures(made));
  if (request.json) {
    print_result(result, ResultStyle::Json);
  } else {
    for (const reports::RunData& run : made.runs) {
      for (const std::string& problem : run.problems)
        std::cerr << "[lockstep report] " << run.folder << ": " << problem << '\n';
    }
    std::cout << "report of " << made.runs.size() << (made.runs.size() == 1 ? " run: " : " runs: ") << request.output
              << '\n';
  }
  if (request.open) {
    const std::string why_not = open_page(request.output);
    if (!why_not.empty())
      std::cerr << "[lockstep report] not opened: " << why_not << "; open " << request.output << '\n';
  }
  if (!problems.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_report(CLI::App& app) {
  auto* command = app.add_subcommand(
      "report", "Write one HTML file about runs: curves, speed, replicas, memory, collectives, settings");
  auto request = std::make_shared<ReportRequest>();
  command
      ->add_option("FOLDER", request->folders,
                   "Folders of runs, or folders that contain some; several runs are drawn over each other")
      ->required();
  command->add_option("-o,--output", request->output, "The file to write")->capture_default_str();
  command->add_flag("--open", request->open, "Open the file in the browser of the desktop");
  command->add_flag("--json", request->json,
                    "Print the path of the file and the figures of the runs as one JSON object");
  command->footer(
      "\nThe file needs no network and no other file. Exit status 1 if a FOLDER is not that of a run.\n"
      "\nExamples:\n"
      "  lockstep report runs/mlp-20261118-101500 --open\n"
      "  lockstep report runs -o compare.html           all runs in the folder, over each other\n"
      "  lockstep report --json runs/a | jq .runs[0].last\n");
  command->callback([request] { write_report(*request); });
}

}  // namespace lockstep::tools
