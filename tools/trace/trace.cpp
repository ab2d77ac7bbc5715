#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
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
  size_t damaged = 0;
  std::vector<std::string> damaged_files;
  std::vector<int64_t> missing_workers;
  int64_t first_step = 0;
  int64_t last_step = 0;
};

/// What a file says about its process; no job where it does not say it.
struct TraceSource {
  bool has_events = false;
  std::string job;
  int64_t worker = 0;
  int64_t num_workers = 0;
};

std::vector<std::string> worker_traces(const std::string& folder) {
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(folder), "[lockstep trace] must be a folder: folder=", folder,
                       "; name the one that LOCKSTEP_TRACE or strategy.trace was given");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_trace = name.starts_with("trace_worker") && name.ends_with(".json");
    if (is_trace && entry.is_regular_file()) files.push_back(entry.path().string());
  }
  LOCKSTEP_CHECK_VALUE(!files.empty(), "[lockstep trace] the folder must hold trace_worker<N>.json: folder=", folder,
                       "; did the training reach the steps that were to be traced?");
  std::sort(files.begin(), files.end());
  return files;
}

/// The next event, one a line: without the comma after it and spaces before the comma. False at the end.
bool next_event(std::istream& in, std::string& text) {
  while (std::getline(in, text)) {
    const size_t end = text.find_last_not_of(" ,\r");
    text.resize(end == std::string::npos ? 0 : end + 1);
    if (!text.empty() && text != "[" && text != "]") return true;
  }
  return false;
}

/// A member of an object, or null where there is none.
Json member(const Json& object, const char* name) { return object.is_object() ? object.value(name, Json()) : Json(); }

bool is_event(const Json& event) {
  const Json arguments = member(event, "args");
  const Json step = member(arguments, "step");
  return member(event, "ph").is_string() && (arguments.is_object() || arguments.is_null()) &&
         (step.is_number_integer() || step.is_null());
}

std::ifstream open_trace(const std::string& path) {
  std::ifstream in(path);
  LOCKSTEP_CHECK_DATA(in.good(), "[lockstep trace] cannot read: file=", path);
  return in;
}

/// The first event is the name of the process.
TraceSource source_of(const std::string& path) {
  TraceSource source;
  std::ifstream in = open_trace(path);
  std::string text;
  source.has_events = next_event(in, text);
  if (!source.has_events) return source;
  const Json event = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json job = member(member(event, "args"), "job");
  const Json workers = member(member(event, "args"), "workers");
  const Json worker = member(event, "pid");
  if (!job.is_string() || !workers.is_number_integer() || !worker.is_number_integer()) return source;
  source.job = job.get<std::string>();
  source.num_workers = workers.get<int64_t>();
  source.worker = worker.get<int64_t>();
  return source;
}

/// Refuses files of several jobs. Returns the workers whose files are not there.
std::vector<int64_t> missing_workers(const std::vector<std::string>& files) {
  constexpr int64_t kMostWorkers = 1'000'000;
  std::map<std::string, std::string> files_of_jobs;
  std::map<int64_t, std::string> files_of_workers;
  int64_t num_workers = 0;
  for (const std::string& file : files) {
    const TraceSource source = source_of(file);
    if (!source.has_events) continue;
    std::string& others = files_of_jobs[source.job];
    others += (others.empty() ? "" : ", ") + file;
    if (source.job.empty()) continue;
    num_workers = std::max(num_workers, std::min(source.num_workers, kMostWorkers));
    const auto [other, is_new] = files_of_workers.emplace(source.worker, file);
    LOCKSTEP_CHECK_VALUE(is_new || files_of_jobs.size() > 1,
                         "[lockstep trace] a worker must have one file: worker=", source.worker,
                         ", files=", other->second, ", ", file, "; move one of them away");
  }
  std::string jobs;
  for (const auto& [job, of_job] : files_of_jobs) {
    jobs += c10::str(jobs.empty() ? "" : "; ", "job ", job.empty() ? "unknown" : job, ": ", of_job);
  }
  LOCKSTEP_CHECK_VALUE(files_of_jobs.size() <= 1, "[lockstep trace] all files must be of one job: ", jobs,
                       "; move those of the others away");
  std::vector<int64_t> missing;
  for (int64_t worker = 0; worker < num_workers; ++worker) {
    if (files_of_workers.find(worker) == files_of_workers.end()) missing.push_back(worker);
  }
  return missing;
}

void add_events(const std::string& path, trace::detail::TraceFile& out, MergedTrace& merged) {
  std::ifstream in = open_trace(path);
  const size_t damaged = merged.damaged;
  for (std::string text; next_event(in, text);) {
    const Json event = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!is_event(event)) {
      ++merged.damaged;
      continue;
    }
    ++merged.events;
    const Json step = member(member(event, "args"), "step");
    if (event["ph"] == "X" && step.is_number_integer()) {
      const auto number = step.get<int64_t>();
      merged.first_step = merged.first_step == 0 ? number : std::min(merged.first_step, number);
      merged.last_step = std::max(merged.last_step, number);
    }
    out.add(text);
  }
  if (merged.damaged > damaged) merged.damaged_files.push_back(path);
  ++merged.files;
}

/// A new file beside the output, which takes its name at the end. Removed where it does not come to that.
class MergedFile {
 public:
  explicit MergedFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
    const int descriptor = ::mkostemp(temporary_.data(), O_CLOEXEC);
    check(descriptor >= 0);
    const mode_t hidden = ::umask(0);
    ::umask(hidden);
    ::fchmod(descriptor, 0666 & ~hidden);
    file_.emplace(temporary_, descriptor);
  }
  ~MergedFile() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  MergedFile(const MergedFile&) = delete;
  MergedFile& operator=(const MergedFile&) = delete;

  trace::detail::TraceFile& events() { return *file_; }

  void finish() {
    check(file_->close());
    file_.reset();
    check(::rename(temporary_.c_str(), path_.c_str()) == 0);
    temporary_.clear();
  }

 private:
  void check(bool holds) const {
    const int error = errno;
    LOCKSTEP_CHECK_DATA(holds, "[lockstep trace] cannot write: output=", path_, ", ",
                        std::generic_category().message(error), "; choose another file");
  }

  std::string path_;
  std::string temporary_;
  std::optional<trace::detail::TraceFile> file_;
};

/// Refuses to replace what is no regular file, and what is read.
void check_trace_output(const std::string& output, const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::file_status status = fs::symlink_status(output, none);
  LOCKSTEP_CHECK_VALUE(!fs::exists(status) || (fs::is_regular_file(status) && fs::path(output).extension() == ".json"),
                       "[lockstep trace] only a .json file is replaced: output=", output, "; choose another name");
  for (const std::string& file : files) {
    LOCKSTEP_CHECK_VALUE(!fs::equivalent(file, output, none),
                         "[lockstep trace] must not replace what it reads: output=", output, "; choose another name");
  }
}

MergedTrace merge_traces(const std::string& folder, const std::string& output) {
  const std::vector<std::string> files = worker_traces(folder);
  check_trace_output(output, files);
  MergedTrace merged;
  merged.missing_workers = missing_workers(files);
  MergedFile out(output);
  for (const std::string& file : files) add_events(file, out.events(), merged);
  out.finish();
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
    if (!merged.missing_workers.empty()) result["missing_workers"] = merged.missing_workers;
    if (merged.damaged > 0) {
      result["damaged_lines"] = merged.damaged;
      result["damaged_files"] = merged.damaged_files;
    }
    print_result(result, *json ? ResultStyle::Json : ResultStyle::Text);
  });
}

}  // namespace lockstep::tools
