#include "tools/doctor/job_processes.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/dump.h"

namespace lockstep::tools {
namespace {

namespace files = std::filesystem;

template <typename Number>
std::optional<Number> whole_number(std::string_view word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

std::string proc_path(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

std::string proc_text(pid_t pid, const char* name) {
  std::ifstream in(proc_path(pid, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns a variable of the environment that a process was started with.
std::optional<std::string> variable_of(const std::string& environment, const std::string& name) {
  size_t begin = 0;
  while (begin < environment.size()) {
    const size_t end = std::min(environment.find('\0', begin), environment.size());
    const std::string_view entry(environment.data() + begin, end - begin);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
    }
    begin = end + 1;
  }
  return std::nullopt;
}

struct ProcessState {
  /// '?' where there is no such process.
  char letter = '?';
  pid_t parent = 0;
  uint64_t start = 0;
};

/// Reads what follows the name in parentheses.
ProcessState process_state(pid_t pid) {
  const std::string text = proc_text(pid, "stat");
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return {};
  std::istringstream in(text.substr(close + 1));
  ProcessState state;
  in >> state.letter >> state.parent;
  constexpr int kBetween = 17;
  std::string skipped;
  for (int i = 0; i < kBetween; ++i) in >> skipped;
  in >> state.start;
  return state;
}

/// Whether a thread blocks the signal of questions: it has no effect on a thread that does not read it.
bool blocks_look_signal(const files::path& thread) {
  std::ifstream in(thread / "status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const uint64_t blocked = std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 16);
    return ((blocked >> (comm::look_signal() - 1)) & 1U) != 0;
  }
  return false;
}

/// The thread that answers questions; 0 where there is none.
pid_t dump_thread(pid_t pid) {
  std::error_code ignored;
  for (files::directory_iterator entry(proc_path(pid, "task"), ignored), end; entry != end; entry.increment(ignored)) {
    std::ifstream in(entry->path() / "comm");
    std::string name;
    if (!std::getline(in, name) || name != comm::kDumpThread || !blocks_look_signal(entry->path())) continue;
    return whole_number<pid_t>(entry->path().filename().string()).value_or(0);
  }
  return 0;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  std::error_code ignored;
  for (files::directory_iterator entry("/proc", ignored), end; entry != end; entry.increment(ignored)) {
    if (const auto pid = whole_number<pid_t>(entry->path().filename().string())) result.push_back(*pid);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// The process and all that it has started, and they in turn.
std::vector<pid_t> with_descendants(pid_t root) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const pid_t pid : all_processes()) children[process_state(pid).parent].push_back(pid);
  std::vector<pid_t> result{root};
  for (size_t i = 0; i < result.size(); ++i) {
    const auto& own = children[result[i]];
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

JobProcess describe_process(pid_t pid, const std::string& environment) {
  JobProcess process;
  process.pid = pid;
  if (const auto file = variable_of(environment, "LOCKSTEP_STEP_FILE")) {
    process.number = whole_number<int64_t>(files::path(*file).filename().string()).value_or(-1);
  }
  const auto given = variable_of(environment, "LOCKSTEP_DUMP");
  const auto temporary = variable_of(environment, "TMPDIR");
  process.dump_folder = given && !given->empty() ? *given : temporary && !temporary->empty() ? *temporary : "/tmp";
  if (files::path(process.dump_folder).is_relative()) {
    std::error_code ignored;
    process.dump_folder = files::read_symlink(proc_path(pid, "cwd"), ignored) / process.dump_folder;
  }
  process.answers = dump_thread(pid) != 0;
  process.start = process_state(pid).start;
  process.command = command_of(pid);
  return process;
}

/// Of the processes of one worker of `lockstep run`, those that answer, or the last one.
std::vector<JobProcess> one_for_each_worker(std::vector<JobProcess> all) {
  std::map<int64_t, std::vector<JobProcess>> workers;
  std::vector<JobProcess> result;
  for (JobProcess& process : all) {
    if (process.number >= 0) {
      workers[process.number].push_back(std::move(process));
    } else if (process.answers) {
      result.push_back(std::move(process));
    }
  }
  for (auto& [number, processes] : workers) {
    const bool any = std::any_of(processes.begin(), processes.end(), [](const auto& each) { return each.answers; });
    if (!any) processes.erase(processes.begin(), processes.end() - 1);
    for (JobProcess& process : processes) {
      if (process.answers || !any) result.push_back(std::move(process));
    }
  }
  return result;
}

std::vector<JobProcess> processes_where(const std::vector<pid_t>& pids,
                                        const std::function<bool(pid_t, const std::string&)>& belongs) {
  std::vector<JobProcess> result;
  for (const pid_t pid : pids) {
    const std::string environment = proc_text(pid, "environ");
    if (pid != getpid() && belongs(pid, environment)) result.push_back(describe_process(pid, environment));
  }
  return one_for_each_worker(std::move(result));
}

bool is_digits(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

bool is_same_folder(const std::string& some, const files::path& other) {
  std::error_code ignored;
  return files::equivalent(some, other, ignored);
}

}  // namespace

bool names_job(const std::string& argument) {
  std::error_code ignored;
  return is_digits(argument) || files::is_directory(argument, ignored);
}

std::vector<JobProcess> find_job_processes(const std::string& job) {
  std::error_code ignored;
  if (!is_digits(job) && files::is_directory(job, ignored)) {
    const files::path steps = files::path(job) / "steps";
    return processes_where(all_processes(), [&](pid_t pid, const std::string& environment) {
      const auto file = variable_of(environment, "LOCKSTEP_STEP_FILE");
      if (file && is_same_folder(files::path(*file).parent_path(), steps)) return true;
      if (!variable_of(environment, "LOCKSTEP_DUMP")) return false;
      return is_same_folder(describe_process(pid, environment).dump_folder, job);
    });
  }
  const auto pid = whole_number<pid_t>(job);
  struct stat info {};
  LOCKSTEP_CHECK_VALUE(
      pid && stat(proc_path(*pid, "").c_str(), &info) == 0, "[doctor] no such process on this machine: JOB=", job,
      "; JOB is the number of a process, or a folder; ./NAME is a folder or a file whose name is a number");
  LOCKSTEP_CHECK_VALUE(geteuid() == 0 || info.st_uid == geteuid(),
                       "[doctor] the process must belong to this user: process=", job, ", user=", info.st_uid);
  const bool is_launcher = with_descendants(*pid).size() > 1;
  auto result = processes_where(with_descendants(*pid), [](pid_t, const std::string&) { return true; });
  // A program without a launcher that does not answer is named, too.
  if (result.empty() && !is_launcher) result.push_back(describe_process(*pid, proc_text(*pid, "environ")));
  return result;
}

bool ask_process(const JobProcess& process) {
  const pid_t thread = dump_thread(process.pid);
  if (thread == 0 || process_state(process.pid).start != process.start) return false;
  siginfo_t question{};
  question.si_code = SI_QUEUE;
  question.si_pid = getpid();
  question.si_uid = getuid();
  question.si_value.sival_int = comm::kLookRequest;
  return syscall(SYS_rt_tgsigqueueinfo, process.pid, thread, comm::look_signal(), &question) == 0;
}

std::string reason_of_silence(pid_t pid) {
  switch (process_state(pid).letter) {
    case '?':
      return "it has ended";
    case 'Z':
      return "it has ended, and its parent has not noticed";
    case 'T':
    case 't':
      return "it is stopped, by SIGSTOP or a debugger";
    case 'D':
      return "it waits for a disk or a device";
    default:
      return dump_thread(pid) != 0
                 ? ""
                 : "it has made no strategy that answers: a program without other workers needs LOCKSTEP_DUMP, a "
                   "folder; a worker answers after it has joined its job";
  }
}

std::string command_of(pid_t pid) {
  std::string text = proc_text(pid, "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace lockstep::tools
