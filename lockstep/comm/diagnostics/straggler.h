#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Finds a worker for which the others wait. In synchronous training all workers make the same steps in the same time;
/// the slow one computes while the others wait in a collective.
namespace lockstep::comm {

struct LOCKSTEP_API StragglerOptions {
  /// A worker is slow that computes this many times as long as the others; 0: nothing is measured.
  double factor = 1.5;
  /// The time over which shares are measured.
  std::chrono::milliseconds window{60'000};

  /// Reads LOCKSTEP_STRAGGLER_FACTOR, `FACTOR` or `FACTOR:SECONDS`.
  static StragglerOptions from_environment();
};

/// What a worker did within a window: of `samples` looks, it was not waiting in a collective at `busy` of them.
struct LOCKSTEP_API Pace {
  uint64_t samples = 0;
  uint64_t busy = 0;
  /// How many runs it has ended within the window.
  uint64_t runs = 0;

  double share() const { return samples == 0 ? 0 : static_cast<double>(busy) / static_cast<double>(samples); }
  bool operator==(const Pace&) const = default;
};

/// The last looks at this worker.
class LOCKSTEP_API PaceWindow {
 public:
  explicit PaceWindow(size_t samples) : samples_(samples) {}
  /// `runs` is the number of runs that have ended so far.
  void add(bool busy, uint64_t runs);
  bool is_full() const { return added_ >= samples_.size(); }
  Pace pace() const;

 private:
  struct Sample {
    bool busy = false;
    uint64_t runs = 0;
  };
  std::vector<Sample> samples_;
  size_t added_ = 0;
};

struct LOCKSTEP_API Straggler {
  int worker = 0;
  /// How many times as long as the others it computes; they are represented by their median.
  double factor = 0;
  /// The share of the time in which it computes and the others wait.
  double waited = 0;
};

/// Returns the worker that computes longest, where that is `factor` times as long as the others and they wait for it at
/// least a tenth of the time; nothing where a worker has no pace, or has ended fewer than two runs.
LOCKSTEP_API std::optional<Straggler> find_straggler(std::span<const std::optional<Pace>> paces, double factor);

/// Decides when to warn: once when a worker becomes slow, and again after it has been as fast as the others.
class LOCKSTEP_API StragglerWarnings {
 public:
  explicit StragglerWarnings(StragglerOptions options) : options_(options) {}
  /// Returns the text of a warning, or nothing. `names` are those of the workers.
  std::optional<std::string> judge(std::span<const std::optional<Pace>> paces, std::span<const std::string> names);

 private:
  StragglerOptions options_;
  int slow_ = -1;
};

}  // namespace lockstep::comm
