#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/doctor_dump.h"

/// Finds the ranks that are out of step by comparing the files of several workers.
namespace lockstep::tools {

/// The state of one rank.
struct RankPosition {
  enum class Kind {
    /// Its worker left no file.
    Unknown,
    /// It is in no collective; `call` is the last that it finished, if any.
    Outside,
    /// It waits in `call`.
    Waiting,
    /// `call` ended with an error.
    Failed,
  };

  int rank = 0;
  int worker = 0;
  Kind kind = Kind::Unknown;
  /// Its last call.
  std::optional<RecordedCall> call;
  /// Sequence of the last call that it finished; -1: none is recorded.
  int64_t finished = -1;
  /// Since when it waits or is outside, in seconds before the latest time in its worker's file.
  double seconds = 0;
  /// It has not made the latest call that any rank has made.
  bool behind = false;
  /// The first call that others have made and it has not, where it is behind and that call is recorded.
  std::optional<RecordedCall> next;
};

/// The first sequence at which ranks made different calls.
struct Mismatch {
  struct Side {
    RecordedCall call;
    std::vector<int> ranks;
  };

  int64_t sequence = 0;
  /// Most common call first.
  std::vector<Side> sides;
};

struct GroupTrace {
  std::string name;
  /// The last sequence that all ranks with a file have finished; -1: none is recorded.
  int64_t finished_by_all = -1;
  /// The latest call that any rank has made, if any.
  std::optional<RecordedCall> latest;
  std::vector<RankPosition> ranks;
  std::optional<Mismatch> mismatch;
};

struct Diagnosis {
  std::vector<WorkerDump> dumps;
  /// Workers without a usable file.
  std::vector<int> missing_workers;
  std::vector<GroupTrace> groups;
  bool in_step = false;
  /// The most likely cause, in one sentence.
  std::string summary;
};

/// Compares the files. Clocks of different files are never compared.
Diagnosis diagnose(std::vector<WorkerDump> dumps);

}  // namespace lockstep::tools
