#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::tools {

/// A place for one worker of an elastic job, on this machine or at a launcher that has joined.
struct ElasticPlace {
  using Time = std::chrono::steady_clock::time_point;

  /// Names its workers.
  int index = 0;
  /// 0: this machine.
  uint64_t launcher = 0;
  /// How often a worker was started here.
  int starts = 0;
  /// The round of restarts (RestartPolicy) in which the last one was started.
  int round = 0;
  /// The number of the worker that runs here.
  std::optional<uint64_t> worker{};
  /// Whether that one has had a state.
  bool has_begun = false;
  /// When it was killed because it does not go on.
  std::optional<Time> killed{};
  /// When the next worker may be started here.
  std::optional<Time> start_at{};
  /// No worker is started here any more.
  bool is_closed = false;

  std::string name() const { return "worker " + std::to_string(index); }
};

/// The places of an elastic job. A place that has had no worker is free; one whose worker has ended is either scheduled
/// for a restart or closed.
class ElasticPlaces {
 public:
  using Time = ElasticPlace::Time;

  /// Adds places of a launcher, or closes its last ones, until it has `count` that are not closed. Workers in closed
  /// places run on, and are not replaced.
  void offer(uint64_t launcher, int count);
  /// A launcher is gone, and its workers with it: the numbers of its places may be used again.
  void forget(uint64_t launcher);
  /// Closes all free and scheduled places.
  void close_all();

  ElasticPlace* find_worker(uint64_t worker);
  /// The workers of a launcher.
  std::vector<uint64_t> workers_of(uint64_t launcher) const;
  std::vector<ElasticPlace>& all() { return places_; }

  /// Returns the next place in which a worker is to be started now, if fewer than `most` run or are scheduled.
  ElasticPlace* next_to_start(int most, Time now);
  /// When a scheduled place is to be started, or `otherwise`.
  Time next_start(Time otherwise) const;

  /// How many places of a launcher are not closed.
  int num_open(uint64_t launcher) const;
  int num_running() const;
  int num_scheduled() const;
  /// How many workers there could be: those that run, scheduled ones and free places.
  int num_possible() const;

 private:
  std::vector<ElasticPlace> places_;
};

}  // namespace lockstep::tools
