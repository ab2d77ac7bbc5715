#include "lockstep/base/env.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::env {
namespace {

constexpr std::array kVariables{
    Variable{"LOCKSTEP_BACKTRACE", "0",
             "Whether errors carry a backtrace: 1 or 0. TORCH_SHOW_CPP_STACKTRACES=1 asks for it, too."},
    Variable{"LOCKSTEP_CHECK_REPLICAS", "auto",
             "When replicas compare the bits of what they hold: auto (after steps 1, 2, 4, 8, ... and every 1,000th), "
             "off, or N for every N-th step. Equal on all workers."},
    Variable{"LOCKSTEP_COLLECTIVE_TIMEOUT", "600", "Seconds that a replica waits for the others in a collective."},
    Variable{"LOCKSTEP_COORDINATOR", "", "host:port of the first worker, where the launcher does not say it."},
    Variable{"LOCKSTEP_DUMP", "",
             "Folder for the last collectives of this process, written on an error or on SIGUSR1. Unset: beside other "
             "temporary files, where there are several workers, and not otherwise."},
    Variable{"LOCKSTEP_ENGINE", "auto",
             "The engine of collectives between processes: auto, shm (one machine), gloo, mpi or nccl."},
    Variable{"LOCKSTEP_FILE_ACCESS", "auto",
             "How datasets read files: map, read (block by block, with read-ahead), or auto (map, except on network "
             "file systems and for data larger than memory)."},
    Variable{"LOCKSTEP_HEARTBEAT_TIMEOUT", "10", "Seconds of silence after which a worker counts as lost."},
    Variable{
        "LOCKSTEP_INTERFACE", "",
        "Address or name of the network interface to use between workers. Unset: the one that routes to the first."},
    Variable{"LOCKSTEP_JOB_TOKEN", "", "Secret of the job: workers without it are rejected."},
    Variable{"LOCKSTEP_JOB_TOKEN_FILE", "", "File with the secret of the job, where others can read the environment."},
    Variable{
        "LOCKSTEP_JOIN_TIMEOUT", "300",
        "Seconds that a worker waits at the start until all others have joined; of an elastic job, also the seconds "
        "from its start until it asks for its first view."},
    Variable{"LOCKSTEP_KEEP_MEMORY", "1",
             "Whether malloc keeps freed memory for the next step: 1, or 0 to return it to the system each time."},
    Variable{"LOCKSTEP_LOG", "warn", "What is logged: error, warn, info, debug or off."},
    Variable{"LOCKSTEP_LOGICAL_CPUS", "1", "Number of logical CPU devices where set_logical_devices was not called."},
    Variable{
        "LOCKSTEP_MEMORY_FOLDER", "",
        "Folder of a memory file system for snapshots of the last steps; lockstep run sets it. Unset: no snapshots."},
    Variable{"LOCKSTEP_NCCL_STANDIN", "0",
             "Internal, for lockstep's own tests: 1 opens the stand-in of NCCL that they build, where one card holds "
             "several ranks. An error where it was not built."},
    Variable{"LOCKSTEP_NUM_WORKERS", "", "Number of pods of Kubernetes that train together."},
    Variable{"LOCKSTEP_ONEDNN", "",
             "Whether LibTorch may use oneDNN: 1 or 0. Unset: yes, except on Arm, where it is slower."},
    Variable{"LOCKSTEP_PJRT_PLUGIN", "",
             "File of the PJRT plugin that XLA's programs run on, or its folder. Unset: one beside the library."},
    Variable{"LOCKSTEP_PLACEMENT", "1",
             "Whether arguments of run and tensors made in it go to the replica's device: 1, or 0 for the CPU."},
    Variable{"LOCKSTEP_PURE_CHECK", "auto",
             "At which calls a replayed step is traced again, to compare it with its function: auto (the 10th, the "
             "100th and every 1,000th), off, or N for every N-th."},
    Variable{"LOCKSTEP_RESTART", "0",
             "How often lockstep run has restarted this job, or this worker of an elastic one; it sets it."},
    Variable{"LOCKSTEP_SERVICE", "", "Headless service through which pods of an indexed Job find each other."},
    Variable{"LOCKSTEP_STEP_FILE", "", "File for the last step that this worker has finished; lockstep run sets it."},
    Variable{"LOCKSTEP_STRAGGLER_FACTOR", "1.5",
             "Worker 0 logs a warning where a worker computes this many times as long as the others for a minute: they "
             "wait for it. 0: never. FACTOR:SECONDS sets another time, at most 3600."},
    Variable{"LOCKSTEP_TLS_CA", "", "File with the certificate of the authority that Gloo's peers must show."},
    Variable{"LOCKSTEP_TLS_CERT", "",
             "File with the certificate that this worker shows its peers: with the other two, Gloo encrypts."},
    Variable{"LOCKSTEP_TLS_KEY", "", "File with the private key of that certificate."},
    Variable{"LOCKSTEP_TRACE", "",
             "Steps whose trace is written, and the folder for it: steps:FIRST-LAST or steps:FIRST-LAST,FOLDER. Unset: "
             "no trace."},
    Variable{"LOCKSTEP_VIEWS", "",
             "host:port of the launcher that issues the views of an elastic job; lockstep run sets it."},
    Variable{"LOCKSTEP_VIEW_WORKER", "", "Number of this worker in an elastic job; lockstep run sets it."},
    Variable{"LOCKSTEP_XLA_CACHE", "",
             "Folder for compiled programs of XLA, which later processes load. Unset: each process compiles its own."},
    Variable{"LOCKSTEP_XLA_CACHE_MIB", "4096",
             "Size of that folder in MiB; above it, programs that were used least recently are removed."},
    Variable{"LOCKSTEP_XLA_CHECKS", "auto",
             "When XLA's programs check indices, targets and integer divisors: 1 (in every step), 0 (never) or auto "
             "(in the first runs, where values are known)."},
    Variable{"LOCKSTEP_XLA_CPU_DEVICES", "4", "Number of devices of XLA's plugin for CPUs."},
    Variable{"LOCKSTEP_XLA_PROGRAMS", "256",
             "How many compiled programs a process keeps; those that were not used for longest are forgotten."},
};

const Variable& row(std::string_view name) {
  const auto* found = std::find_if(kVariables.begin(), kVariables.end(), [&](const auto& v) { return v.name == name; });
  LOCKSTEP_ASSERT(found != kVariables.end(), "the variable must be in the table of env.cpp: name=", name);
  return *found;
}

/// Parses the whole of `word` or throws.
template <typename Number>
Number number(std::string_view name, const std::string& word, std::string_view what) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == word.data() + word.size(), "[environment] the variable must be ",
                       what, ": ", name, "=\"", word, "\"");
  return value;
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

std::optional<std::string> given(std::string_view name) {
  const char* value = std::getenv(row(name).name.data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string text(std::string_view name) { return given(name).value_or(std::string(row(name).default_value)); }

bool flag(std::string_view name) {
  std::string word = text(name);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "1" || word == "true" || word == "on" || word == "yes") return true;
  LOCKSTEP_CHECK_VALUE(word.empty() || word == "0" || word == "false" || word == "off" || word == "no",
                       "[environment] the variable must be 1 or 0: ", name, "=\"", word, "\"");
  return false;
}

int64_t integer(std::string_view name) { return number<int64_t>(name, text(name), "a whole number"); }

std::chrono::milliseconds seconds(std::string_view name) {
  const auto value = number<double>(name, text(name), "a number of seconds");
  return std::chrono::milliseconds(static_cast<int64_t>(value * 1000));
}

}  // namespace lockstep::env
