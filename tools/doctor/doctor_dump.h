#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// Files with the last collectives of a worker (LOCKSTEP_DUMP): a line of JSON about the worker, then one for each call
/// of each of its ranks in each group, oldest first.
namespace lockstep::tools {

enum class CallState {
  /// The rank waits in the call.
  Arrived,
  Done,
  Failed,
};

/// One collective of one rank.
struct RecordedCall {
  int64_t sequence = 0;
  /// In words: `all_reduce(SUM, float32[3, 4])`.
  std::string text;
  /// The call site, `train.cpp:57`; empty where unknown.
  std::string site;
  int64_t start_ns = 0;
  /// Zero until the call has ended.
  int64_t end_ns = 0;
  CallState state = CallState::Arrived;
};

/// What a process did when it wrote its file; older files have none of it.
struct RecordedActivity {
  /// Runs that had ended; -1: not known.
  int64_t runs = -1;
  /// The last finished step, as the program counts; -1: not known.
  int64_t step = -1;
  /// run, input, checkpoint, or outside of these.
  std::string name;
  /// Since when, by this host's clock; 0: not known.
  int64_t since_ns = 0;
  int64_t first_run_ns = 0;
  /// The first step that was counted, and when; -1 and 0: not known.
  int64_t first_step = -1;
  int64_t first_step_ns = 0;
  /// When the file was written, by this host's clock; 0: not known.
  int64_t now_ns = 0;
  /// The share of the last `busy_seconds` in which the worker did not wait in a collective; negative: not measured.
  double busy = -1;
  double busy_seconds = 0;
  /// Why it is not measured; empty where it is, or only not yet.
  std::string busy_unknown;
};

/// The file of one worker.
struct WorkerDump {
  std::string file;
  /// -1 where the file's first line cannot be used; there are no calls then.
  int worker = -1;
  int num_workers = 0;
  int replicas_per_worker = 0;
  /// How the job names its workers; empty where there is one.
  std::vector<std::string> names;
  std::string host;
  int64_t pid = 0;
  std::string time;
  /// Why it was written: the name of a signal, or the text of an error.
  std::string reason;
  /// It is an answer to `lockstep doctor JOB`.
  bool is_look() const;
  RecordedActivity activity;
  /// Calls by group and rank.
  std::map<std::string, std::map<int, std::vector<RecordedCall>>> groups;
  /// Latest time in the file, by this host's clock.
  int64_t newest_ns = 0;
  /// The problems of the file, one sentence each.
  std::vector<std::string> damage;
};

/// Reads a file as far as possible; never throws for its contents. Bytes that are no UTF-8 become U+FFFD.
WorkerDump read_dump(const std::string& file);

}  // namespace lockstep::tools
