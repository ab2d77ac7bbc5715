#pragma once

#include <exception>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/recorder.h"

/// The last collectives of this process in a file, with its step and what it does, for `lockstep doctor`: written when
/// a job of several workers fails, and on SIGUSR1. Where LOCKSTEP_DUMP is set, also by strategies of one process.
namespace lockstep::comm {

/// Which worker the dumps of this process belong to.
struct LOCKSTEP_API DumpIdentity {
  int worker = 0;
  int num_workers = 1;
  int replicas_per_worker = 1;
  /// How messages name the workers of the job; empty where there is one.
  std::vector<std::string> names{};
};
LOCKSTEP_API void set_dump_identity(const DumpIdentity& identity);

/// Adds the calls of a recorder to all dumps, for as long as it lives.
class LOCKSTEP_API DumpedRecorder {
 public:
  DumpedRecorder(std::string group, int first_rank, const Recorder& recorder);
  ~DumpedRecorder();
  DumpedRecorder(const DumpedRecorder&) = delete;
  DumpedRecorder& operator=(const DumpedRecorder&) = delete;

 private:
  int id_;
};

/// Writes a file into the folder LOCKSTEP_DUMP, or beside other temporary files, and returns its name; empty, with a
/// line in the log, where that is not possible. Only this user can read it; links at its name are replaced, not
/// followed. Never throws.
LOCKSTEP_API std::string write_dump(const std::string& reason);

/// Returns what such a file contains.
LOCKSTEP_API std::string dump_text(const std::string& reason);

/// Writes a dump because the job has failed, and logs its path, once. Never throws.
LOCKSTEP_API void dump_failure(const std::string& reason);

/// Writes a dump whenever the process gets SIGUSR1. Where the program handles or ignores that signal itself, it keeps
/// it: this is logged if LOCKSTEP_DUMP is set.
///
/// Starts a thread that also answers `lockstep doctor JOB`, whatever the program does with signals.
LOCKSTEP_API void dump_on_signal();

/// A question of `lockstep doctor JOB`: the signal `look_signal()` with the value `kLookRequest`, sent to the thread
/// `kDumpThread` of a process. This thread blocks all signals and reads this one from a descriptor, so that no handler
/// of the program is called and no default action takes place. The answer is the file `look_file(folder, process)`,
/// whose reason is `kLookReason`. The process removes an answer that nobody has taken for five seconds.
LOCKSTEP_API int look_signal();
inline constexpr int kLookRequest = 0x10c5;
inline constexpr const char* kDumpThread = "lockstep_dump";
inline constexpr const char* kLookReason = "lockstep doctor";
LOCKSTEP_API std::string look_file(const std::string& folder, pid_t process);

/// For a strategy of one process: where LOCKSTEP_DUMP is set, adds the calls of its replicas to all dumps for as long
/// as the handle lives, and calls dump_on_signal. Returns null where it is not set.
LOCKSTEP_API std::shared_ptr<void> dump_local_replicas(int replicas, const Recorder& recorder);

/// Writes a dump because a run of a strategy of one process has thrown, where LOCKSTEP_DUMP is set. The name of the
/// file is logged once. Never throws.
LOCKSTEP_API void dump_failed_run(const std::exception_ptr& error);

}  // namespace lockstep::comm
