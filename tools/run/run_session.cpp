#include "tools/run/run_session.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <signal.h>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

/// Returns the session of a live process, or nothing where it has ended.
std::optional<pid_t> live_session(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  if (!std::getline(file, line, '\0')) return std::nullopt;
  const size_t name_end = line.rfind(')');  // the name before it may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  fields >> state >> parent >> group >> session;
  const bool ended = state == 'Z' || state == 'X';
  if (!fields || ended) return std::nullopt;
  return session;
}

std::vector<pid_t> live_members(pid_t session) {
  std::vector<pid_t> result;
  std::error_code ignored;  // processes start and end while the folder is read
  for (fs::directory_iterator entry("/proc", ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || rest != name.data() + name.size()) continue;
    if (live_session(entry->path()) == session) result.push_back(pid);
  }
  return result;
}

}  // namespace

bool session_lives(pid_t session) { return !live_members(session).empty(); }

void signal_session(pid_t session, int signal) {
  kill(-session, signal);  // the leader's group with one call, so that all members get the signal at the same time
  for (const pid_t pid : live_members(session)) {
    if (getpgid(pid) != session) kill(pid, signal);
  }
}

}  // namespace lockstep::tools
