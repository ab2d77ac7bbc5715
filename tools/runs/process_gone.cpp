#include "tools/runs/process_gone.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>

namespace lockstep::tools {
namespace {

std::string run_text(const Json& run, const char* key) {
  const auto found = run.find(key);
  return found != run.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string name_of_this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// When a process began, in seconds since 1970; nothing where the system does not tell.
std::optional<double> start_of_process(int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  constexpr int kStartTime = 20;  // field 22, counted from the one behind the name
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  std::ifstream all("/proc/stat");
  for (std::string key; all >> key;) {
    double boot = 0;
    if (key == "btime" && all >> boot) {
      return boot + std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    all.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

double seconds_of_iso(const std::string& text) {
  std::tm parts{};
  return strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr ? 0 : static_cast<double>(timegm(&parts));
}

}  // namespace

bool is_process_gone(const Json& whole) {
  const auto attempts = whole.find("attempts");
  const bool has_attempts = attempts != whole.end() && attempts->is_array() && !attempts->empty();
  const Json& run = has_attempts && attempts->back().is_object() ? attempts->back() : whole;
  if (run_text(run, "host") != name_of_this_host()) return false;
  const Json number = run.value("pid", Json());
  const int64_t pid = number.is_number_integer() ? number.get<int64_t>() : 0;
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return true;
  // Another process may have got the number of one that is gone: it began later than the run.
  constexpr double kRounding = 3;
  const double begun = seconds_of_iso(run_text(run, run.contains("started") ? "started" : "created"));
  const auto start = start_of_process(pid);
  return start && begun > 0 && *start > begun + kRounding;
}

}  // namespace lockstep::tools
