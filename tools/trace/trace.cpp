#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_file.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

/// What was read of the files.
struct MergedTrace {
  size_t files = 0;
  size_t events = 0;
  /// Lines that are no event: the last one of a process that was killed on a full disk.
  size_t cut = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
};

std::vector<std::string> worker_traces(const std::string& folder) {
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(folder), "[lockstep trace] must be a folder: folder=", folder,
                       "; name the one that LOCKSTEP_TRACE or strategy.trace was given");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("trace_worker") && name.ends_with(".json")) files.push_back(entry.path().string());
  }
  LOCKSTEP_CHECK_VALUE(!files.empty(), "[lockstep trace] the folder must hold trace_worker<N>.json: folder=", folder,
                       "; did the training reach the steps that were to be traced?");
  std::sort(files.begin(), files.end());
  return files;
}

/// One event a line, with a comma after it and spaces before the comma.
std::string without_separator(const std::string& line) {
  const size_t end = line.find_last_not_of(" ,\r");
  return end == std::string::npos ? "" : line.substr(0, end + 1);
}

void add_events(const std::string& path, trace::detail::TraceFile& out, MergedTrace& merged) {
  std::ifstream in(path);
  LOCKSTEP_CHECK_DATA(in.good(), "[lockstep trace] cannot read: file=", path);
  for (std::string line; std::getline(in, line);) {
    const std::string text = without_separator(line);
    if (text.empty() || text == "[" || text == "]") continue;
    const Json event = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) {
      ++merged.cut;
      continue;
    }
    ++merged.events;
    if (event.value("ph", "") == "X" && event.contains("args") && event["args"].contains("step")) {
      const int64_t step = event["args"]["step"];
      merged.first_step = merged.first_step == 0 ? step : std::min(merged.first_step, step);
      merged.last_step = std::max(merged.last_step, step);
    }
    out.add(text);
  }
  ++merged.files;
}

MergedTrace merge_traces(const std::string& folder, const std::string& output) {
  const std::vector<std::string> files = worker_traces(folder);
  for (const std::string& file : files) {
    std::error_code none;
    LOCKSTEP_CHECK_VALUE(!std::filesystem::equivalent(file, output, none),
                         "[lockstep trace] must not replace what it reads: output=", output, "; choose another name");
  }
  MergedTrace merged;
  trace::detail::TraceFile out(output);
  for (const std::string& file : files) add_events(file, out, merged);
  LOCKSTEP_CHECK_DATA(out.close(), "[lockstep trace] cannot write: file=", output);
  return merged;
}

}  // namespace

void add_trace(CLI::App& app) {
  auto* command = app.add_subcommand(
      "trace",
      "Merge the traces of all workers (LOCKSTEP_TRACE) into one file for ui.perfetto.dev or chrome://tracing");
  auto folder = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>("trace.json");
  auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *folder, "The folder with trace_worker<N>.json of all workers")->required();
  command->add_option("-o,--output", *output, "The file to write")->capture_default_str();
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([=] {
    const MergedTrace merged = merge_traces(*folder, *output);
    Json result{{"name", "trace"}, {"file", *output}, {"workers", merged.files}, {"events", merged.events}};
    result["first_step"] = merged.first_step;
    result["last_step"] = merged.last_step;
    if (merged.cut > 0) result["cut_lines"] = merged.cut;
    print_result(result, *json ? ResultStyle::Json : ResultStyle::Text);
  });
}

}  // namespace lockstep::tools
