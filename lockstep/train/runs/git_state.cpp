#include "lockstep/train/runs/git_state.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace lockstep::detail {
namespace {

using GitClock = std::chrono::steady_clock;
constexpr size_t kMostStatus = 64 << 20;

/// Starts a program in a process group of its own; its standard output goes to `output`. Returns 0 where it cannot.
pid_t start_program(std::vector<std::string> command, int output) {
  std::vector<char*> arguments;
  for (std::string& part : command) arguments.push_back(part.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int error = posix_spawnp(&process, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? process : 0;
}

/// Returns false where the end has not come in time, or the text is longer.
bool read_to_end(int file, GitClock::time_point deadline, size_t most_bytes, std::string& text) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - GitClock::now()).count();
    pollfd waiting{file, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t count = ::read(file, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > most_bytes) return false;
  }
}

/// What a program prints; nothing where it fails, takes longer or prints more.
std::optional<std::string> output_of(const std::vector<std::string>& command, std::chrono::milliseconds limit,
                                     size_t most_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t process = start_program(command, ends[1]);
  ::close(ends[1]);
  std::string text;
  const bool is_complete = process > 0 && read_to_end(ends[0], GitClock::now() + limit, most_bytes, text);
  ::close(ends[0]);
  if (process <= 0) return std::nullopt;
  if (!is_complete) ::kill(-process, SIGKILL);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(process, &status, 0);
  } while (ended < 0 && errno == EINTR);
  const bool is_good = is_complete && ended == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return is_good ? std::optional(text) : std::nullopt;
}

}  // namespace

GitState parse_git_status(std::string_view text) {
  constexpr std::string_view kCommit = "# branch.oid ";
  constexpr std::string_view kBranch = "# branch.head ";
  GitState state;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with(kCommit)) {
      state.commit = line.substr(kCommit.size());
    } else if (line.starts_with(kBranch)) {
      state.branch = line.substr(kBranch.size());
    } else if (line.starts_with("? ")) {
      state.untracked_files = state.untracked_files.value_or(0) + 1;
    } else if (!line.empty() && line[0] != '#') {
      state.dirty = true;
      ++state.changed_files;
    }
  }
  if (state.commit == "(initial)") state.commit.clear();
  if (state.branch == "(detached)") state.branch.clear();
  return state;
}

std::optional<GitState> git_state(const std::string& folder, std::chrono::milliseconds limit) {
  for (const std::string untracked : {"normal", "no"}) {
    const auto text = output_of({"git", "--no-optional-locks", "-C", folder, "status", "--porcelain=v2", "--branch",
                                 "--untracked-files=" + untracked},
                                limit, kMostStatus);
    if (!text) continue;
    GitState state = parse_git_status(*text);
    if (untracked == "normal" && !state.untracked_files) state.untracked_files = 0;
    return state;
  }
  return std::nullopt;
}

std::optional<std::string> git_difference(const std::string& folder, std::chrono::milliseconds limit,
                                          size_t most_bytes) {
  return output_of(
      {"git", "--no-optional-locks", "-C", folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color",
       "--src-prefix=a/", "--dst-prefix=b/", "-U3", "--no-relative", "--submodule=short", "--binary", "HEAD"},
      limit, most_bytes);
}

}  // namespace lockstep::detail
