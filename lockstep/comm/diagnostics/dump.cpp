#include "lockstep/comm/diagnostics/dump.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <sstream>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

#include <c10/util/thread_name.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/base/json_text.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/activity.h"

namespace lockstep::comm {
namespace {

struct Source {
  std::string group;
  int first_rank;
  const Recorder* recorder;
};

struct Sources {
  std::mutex mutex;
  DumpIdentity identity;
  bool is_worker = false;
  int num_local = 0;
  std::map<int, Source> all;
  int next = 0;
};

Sources& sources() {
  static auto* instance = new Sources;  // never destroyed: a dump may be asked for at any time
  return *instance;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string folder() {
  if (const auto given = env::given("LOCKSTEP_DUMP")) return *given;
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
}

void write_activity(std::ostream& out) {
  const ProcessActivity own = process_activity();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  out << ", \"now_ns\": " << std::chrono::nanoseconds(now).count() << ", \"runs\": " << own.runs << ", \"activity\": \""
      << activity_name(own.activity) << '"';
  if (own.step >= 0) out << ", \"step\": " << own.step;
  if (own.first_step >= 0) {
    out << ", \"first_step\": " << own.first_step << ", \"first_step_ns\": " << own.first_step_time.count();
  }
  if (own.since.count() > 0) out << ", \"activity_since_ns\": " << own.since.count();
  if (own.first_run.count() > 0) out << ", \"first_run_ns\": " << own.first_run.count();
  if (own.busy >= 0) out << ", \"busy\": " << own.busy << ", \"busy_ns\": " << own.busy_time.count();
  if (!own.busy_unknown.empty()) out << ", \"busy_unknown\": " << json_quoted(own.busy_unknown);
}

void write_names(std::ostream& out, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const char* separator = ", \"names\": [";
  for (const std::string& name : names) {
    out << separator << json_quoted(name);
    separator = ", ";
  }
  out << ']';
}

void write(std::ostream& out, const std::string& reason) {
  const DumpIdentity& identity = sources().identity;
  out << "{\"lockstep_dump\": 1, \"worker\": " << identity.worker << ", \"num_workers\": " << identity.num_workers
      << ", \"replicas_per_worker\": " << identity.replicas_per_worker << ", \"host\": " << json_quoted(host_name())
      << ", \"pid\": " << getpid() << ", \"time\": \"" << time_now() << "\", \"reason\": " << json_quoted(reason);
  write_names(out, identity.names);
  write_activity(out);
  out << "}\n";
  for (const auto& [id, source] : sources().all) source.recorder->dump(out, source.group, source.first_rank);
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

constexpr const char* kEnding = ".json";

/// Writes a new file that only this user can read and renames it to `path`.json: a link or a file of another user at
/// either name is not followed. Returns the name that it has; empty, with errno, where it could not be written.
std::string write_new_file(const std::string& path, const std::string& text) {
  std::string name = path + "-XXXXXX" + kEnding;
  const int file = mkostemps(name.data(), static_cast<int>(std::strlen(kEnding)), O_CLOEXEC);
  if (file < 0) return "";
  const bool written = write_all(file, text);
  const int error = errno;
  close(file);
  if (!written) {
    unlink(name.c_str());
    errno = error;
    return "";
  }
  const std::string wanted = path + kEnding;
  return rename(name.c_str(), wanted.c_str()) == 0 ? wanted : name;
}

/// Who writes dumps, for the signal handler.
std::atomic<int> dump_event{-1};
std::atomic<pid_t> dump_process{0};

extern "C" void note_signal(int) {
  // A forked process has the handler and the descriptor, but not the thread.
  if (getpid() != dump_process.load()) return;
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(dump_event.load(), &one, sizeof(one));
  errno = saved;
}

/// Writes all that is known to a file; the name without its ending is `path`.
std::string write_to(const std::string& path, const std::string& reason) {
  std::ostringstream text;
  write(text, reason);
  return write_new_file(path, text.str());
}

void answer_look() try {
  const std::lock_guard lock(sources().mutex);
  std::string path = look_file(folder(), getpid());
  path.resize(path.size() - std::strlen(kEnding));
  if (write_to(path, kLookReason).empty()) {
    LOCKSTEP_LOG(Warn) << "a question of lockstep doctor could not be answered: file=" << path << kEnding << ", "
                       << std::strerror(errno);
  }
} catch (const std::exception& error) {
  LOCKSTEP_LOG(Warn) << "a question of lockstep doctor could not be answered: " << error.what();
}

/// How long an answer waits for the command that has asked, which waits 2 s for it.
constexpr std::chrono::milliseconds kAnswerLife{5000};

/// Takes all signals that have come; returns whether one of them is a question.
bool take_questions(int signals) {
  bool any = false;
  for (signalfd_siginfo info{}; read(signals, &info, sizeof(info)) == ssize_t{sizeof(info)};) {
    any = any || (info.ssi_code == SI_QUEUE && info.ssi_int == kLookRequest);
  }
  return any;
}

void serve_dumps(int event, int signals) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  c10::setThreadName(kDumpThread);
  bool has_answered = false;
  while (true) {
    std::array<pollfd, 2> ready{pollfd{event, POLLIN, 0}, pollfd{signals, POLLIN, 0}};
    const int count = poll(ready.data(), ready.size(), has_answered ? static_cast<int>(kAnswerLife.count()) : -1);
    if (count < 0 && errno != EINTR) return;
    if (count == 0) {
      unlink(look_file(folder(), getpid()).c_str());
      has_answered = false;
    }
    if (take_questions(signals)) {
      answer_look();
      has_answered = true;
    }
    if (uint64_t asked = 0; read(event, &asked, sizeof(asked)) != ssize_t{sizeof(asked)}) continue;
    const std::string path = write_dump("SIGUSR1");
    if (!path.empty()) {
      LOCKSTEP_LOG(Warn) << "the last collectives are in " << path << " (SIGUSR1)";
    }
  }
}

/// Starts the thread; returns whether it could.
bool start_dump_thread() {
  sigset_t look;
  sigemptyset(&look);
  sigaddset(&look, look_signal());
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int signals = signalfd(-1, &look, SFD_CLOEXEC | SFD_NONBLOCK);
  if (event < 0 || signals < 0) {
    for (const int each : {event, signals}) {
      if (each >= 0) close(each);
    }
    return false;
  }
  dump_event.store(event);
  dump_process.store(getpid());
  std::thread(serve_dumps, event, signals).detach();
  return true;
}

}  // namespace

void set_dump_identity(const DumpIdentity& identity) {
  const std::lock_guard lock(sources().mutex);
  sources().identity = identity;
  sources().is_worker = true;
}

DumpedRecorder::DumpedRecorder(std::string group, int first_rank, const Recorder& recorder) {
  const std::lock_guard lock(sources().mutex);
  id_ = sources().next++;
  sources().all.emplace(id_, Source{std::move(group), first_rank, &recorder});
}

DumpedRecorder::~DumpedRecorder() {
  const std::lock_guard lock(sources().mutex);
  sources().all.erase(id_);
}

std::string dump_text(const std::string& reason) {
  const std::lock_guard lock(sources().mutex);
  std::ostringstream text;
  write(text, reason);
  return text.str();
}

std::string write_dump(const std::string& reason) try {
  const std::lock_guard lock(sources().mutex);
  const std::string path = c10::str(folder(), "/lockstep-worker", sources().identity.worker, "-", getpid());
  std::string written = write_to(path, reason);
  if (!written.empty()) return written;
  LOCKSTEP_LOG(Warn) << "the last collectives could not be written: file=" << path << ".json, " << std::strerror(errno)
                     << "; LOCKSTEP_DUMP names the folder";
  return "";
} catch (const std::exception& error) {
  LOCKSTEP_LOG(Warn) << "the last collectives could not be written: " << error.what();
  return "";
}

void dump_failure(const std::string& reason) {
  static std::atomic<bool> is_told{false};
  const std::string path = write_dump(reason);
  if (path.empty() || is_told.exchange(true)) return;
  LOCKSTEP_LOG(Warn) << "the job is over; the last collectives of this worker are in " << path
                     << " (lockstep doctor FILE... reads those of all workers)";
}

void dump_on_signal() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!start_dump_thread()) return;
    struct sigaction before {};
    if (sigaction(SIGUSR1, nullptr, &before) != 0) return;
    if (before.sa_handler != SIG_DFL) {
      if (!env::given("LOCKSTEP_DUMP")) return;
      LOCKSTEP_LOG(Warn) << "SIGUSR1 writes no file into LOCKSTEP_DUMP: this program "
                         << (before.sa_handler == SIG_IGN ? "ignores" : "handles")
                         << " this signal itself; `lockstep doctor JOB` asks without it";
      return;
    }
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, nullptr);
  });
}

int look_signal() { return SIGRTMAX - 5; }

std::string look_file(const std::string& folder, pid_t process) {
  return c10::str(folder, "/lockstep-look-", process, kEnding);
}

std::shared_ptr<void> dump_local_replicas(int replicas, const Recorder& recorder) {
  if (!env::given("LOCKSTEP_DUMP")) return nullptr;
  std::string group = "local";
  {
    const std::lock_guard lock(sources().mutex);
    if (const int number = sources().num_local++; number > 0) group += c10::str(" ", number);
    if (!sources().is_worker) {
      int& known = sources().identity.replicas_per_worker;
      known = std::max(known, replicas);
    }
  }
  dump_on_signal();
  return std::make_shared<DumpedRecorder>(std::move(group), 0, recorder);
}

void dump_failed_run(const std::exception_ptr& error) {
  static std::atomic<bool> is_told{false};
  if (!env::given("LOCKSTEP_DUMP")) return;
  const std::string path = write_dump(error_text(error));
  if (path.empty() || is_told.exchange(true)) return;
  LOCKSTEP_LOG(Warn) << "a run has failed; the last collectives are in " << path << " (lockstep doctor FILE reads it)";
}

}  // namespace lockstep::comm
