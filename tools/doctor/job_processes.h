#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

/// Which processes of this machine belong to a job.
namespace lockstep::tools {

struct JobProcess {
  pid_t pid = 0;
  /// Its number among the workers of `lockstep run`; -1 where it was not started by it.
  int64_t number = -1;
  /// The folder for its dumps, as its environment says.
  std::string dump_folder;
  /// Whether it answers questions: it has made a strategy that does.
  bool answers = false;
  /// When it was started, in ticks of the kernel: another process with its number has another one.
  uint64_t start = 0;
  /// Its command, for people.
  std::string command;
};

/// Whether an argument of `lockstep doctor` names a job: a word of digits, which is a process id, or a folder.
bool names_job(const std::string& argument);

/// Returns the processes of a job, by number and process id: `job` is the process id of `lockstep run` or of a program,
/// the folder that `lockstep run` has made for the job, or the folder LOCKSTEP_DUMP of running programs. Of the
/// processes of one worker, those that answer; the last one where none does. ValueError where the process or the folder
/// does not exist, or belongs to another user.
std::vector<JobProcess> find_job_processes(const std::string& job);

/// Asks a process to answer (comm::look_signal). Nothing is sent, and false returned, where it is no longer the same
/// process or has no thread that answers.
bool ask_process(const JobProcess& process);

/// Why a process may not answer: "it is stopped (SIGSTOP)"; empty where nothing is known.
std::string reason_of_silence(pid_t pid);

/// Returns the command line of a process; empty where there is none.
std::string command_of(pid_t pid);

}  // namespace lockstep::tools
