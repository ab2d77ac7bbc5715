#include "lockstep/comm/diagnostics/dump.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

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
  std::map<int, Source> all;
  int next = 0;
};

Sources& sources() {
  static auto* instance = new Sources;  // never destroyed: a dump may be asked for at any time
  return *instance;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(letter));
      out += code;
    } else {
      out += letter;
    }
  }
  return out + '"';
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
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

void write(std::ostream& out, const std::string& reason) {
  const DumpIdentity& identity = sources().identity;
  out << "{\"lockstep_dump\": 1, \"worker\": " << identity.worker << ", \"num_workers\": " << identity.num_workers
      << ", \"replicas_per_worker\": " << identity.replicas_per_worker << ", \"host\": " << quoted(host_name())
      << ", \"pid\": " << getpid() << ", \"time\": \"" << time_now() << "\", \"reason\": " << quoted(reason) << "}\n";
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

/// Writes a new file that only this user can read and renames it to `path`.json: a link or a file of another user at
/// either name is not followed. Returns the name that it has; empty, with errno, where it could not be written.
std::string write_new_file(const std::string& path, const std::string& text) {
  constexpr const char* kEnding = ".json";
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

std::atomic<int> signal_pipe{-1};

extern "C" void note_signal(int) {
  const int saved = errno;
  [[maybe_unused]] const auto written = ::write(signal_pipe.load(), "d", 1);
  errno = saved;
}

}  // namespace

void set_dump_identity(const DumpIdentity& identity) {
  const std::lock_guard lock(sources().mutex);
  sources().identity = identity;
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
  const std::string text = dump_text(reason);
  const std::lock_guard lock(sources().mutex);
  const std::string path = c10::str(folder(), "/lockstep-worker", sources().identity.worker, "-", getpid());
  std::string written = write_new_file(path, text);
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
    struct sigaction before {};
    if (sigaction(SIGUSR1, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    signal_pipe.store(ends[1]);
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, nullptr);
    std::thread([from = ends[0]] {
      for (char byte = 0; read(from, &byte, 1) == 1;) {
        const std::string path = write_dump("SIGUSR1");
        if (!path.empty()) {
          LOCKSTEP_LOG(Warn) << "the last collectives are in " << path << " (SIGUSR1)";
        }
      }
    }).detach();
  });
}

}  // namespace lockstep::comm
