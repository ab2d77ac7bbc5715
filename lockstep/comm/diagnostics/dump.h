#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/recorder.h"

/// The last collectives of this process in a file, for `lockstep doctor FILE...`: written when a job of several
/// workers fails, and on SIGUSR1.
namespace lockstep::comm {

/// Which worker the dumps of this process belong to.
struct LOCKSTEP_API DumpIdentity {
  int worker = 0;
  int num_workers = 1;
  int replicas_per_worker = 1;
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

/// Writes a dump whenever the process gets SIGUSR1. Does nothing where the program handles that signal itself.
LOCKSTEP_API void dump_on_signal();

}  // namespace lockstep::comm
