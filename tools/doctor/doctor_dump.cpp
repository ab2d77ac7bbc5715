#include "tools/doctor/doctor_dump.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/json_text.h"
#include "lockstep/comm/diagnostics/dump.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

CallState state_of(const std::string& word) {
  if (word == "arrived") return CallState::Arrived;
  if (word == "done") return CallState::Done;
  if (word == "failed") return CallState::Failed;
  throw std::invalid_argument("state=" + word);
}

void read_head(const json& line, WorkerDump& dump) {
  if (line.at("lockstep_dump").get<int>() != kFormat) {
    throw std::invalid_argument("lockstep_dump=" + line.at("lockstep_dump").dump() + ", this command reads 1");
  }
  dump.num_workers = line.at("num_workers");
  dump.replicas_per_worker = line.at("replicas_per_worker");
  dump.names = line.value("names", std::vector<std::string>());
  dump.host = line.value("host", "");
  dump.pid = line.value("pid", int64_t{0});
  dump.time = line.value("time", "");
  dump.reason = line.value("reason", "");
  dump.activity.runs = line.value("runs", int64_t{-1});
  dump.activity.step = line.value("step", int64_t{-1});
  dump.activity.name = line.value("activity", "");
  dump.activity.since_ns = line.value("activity_since_ns", int64_t{0});
  dump.activity.first_run_ns = line.value("first_run_ns", int64_t{0});
  dump.activity.first_step = line.value("first_step", int64_t{-1});
  dump.activity.first_step_ns = line.value("first_step_ns", int64_t{0});
  dump.activity.now_ns = line.value("now_ns", int64_t{0});
  dump.activity.busy = line.value("busy", -1.0);
  dump.activity.busy_seconds = static_cast<double>(line.value("busy_ns", int64_t{0})) * 1e-9;
  dump.activity.busy_unknown = line.value("busy_unknown", "");
  dump.newest_ns = dump.activity.now_ns;
  const int worker = line.at("worker");
  if (worker < 0 || worker >= dump.num_workers) throw std::invalid_argument("worker=" + std::to_string(worker));
  dump.worker = worker;
}

void read_call(const json& line, WorkerDump& dump) {
  RecordedCall call{line.at("sequence"),
                    line.at("call"),
                    line.value("site", ""),
                    line.at("start_ns"),
                    line.value("end_ns", int64_t{0}),
                    state_of(line.at("state"))};
  dump.newest_ns = std::max({dump.newest_ns, call.start_ns, call.end_ns});
  dump.groups[line.at("group")][line.at("rank")].push_back(std::move(call));
}

/// Parses a line; what is no UTF-8 in it is replaced.
json parse_line(const std::string& text) {
  json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_discarded()) return line;
  return json::parse(json::parse(json_quoted(text)).get<std::string>());
}

/// Reads one line or notes why not.
void read_line(const std::string& text, int64_t number, WorkerDump& dump) {
  const auto note = [&](const std::string& why) {
    dump.damage.push_back("line " + std::to_string(number) + " cannot be used (" + why + ")");
  };
  try {
    const json line = parse_line(text);
    if (number == 1) {
      read_head(line, dump);
    } else {
      read_call(line, dump);
    }
  } catch (const json::parse_error&) {
    note("it is cut or not JSON");
  } catch (const std::exception& error) {
    note(error.what());
  }
}

}  // namespace

bool WorkerDump::is_look() const { return reason == comm::kLookReason; }

WorkerDump read_dump(const std::string& file) {
  WorkerDump dump;
  dump.file = file;
  std::ifstream stream(file);
  if (!stream) {
    dump.damage.emplace_back("the file cannot be opened");
    return dump;
  }
  int64_t number = 0;
  for (std::string text; std::getline(stream, text);) {
    read_line(text, ++number, dump);
    if (dump.worker < 0) break;  // the worker of these calls is unknown
  }
  if (number == 0) dump.damage.emplace_back("the file is empty");
  return dump;
}

}  // namespace lockstep::tools
