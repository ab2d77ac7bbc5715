#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/train/runs/json_lines.h"
#include "lockstep/train/runs/phase_seconds.h"
#include "lockstep/train/trainer/trainer.h"

/// Internal: the lines of steps.jsonl.
namespace lockstep::detail {

/// Divides a training into intervals. All workers make the same calls. One worker ends an interval after the step at
/// which its time is over. Several do so where it probably is: the chief asks one step before, and they agree together
/// with signals. The time is longer the longer the training has run, so that the lines of a month are about 20,000.
class StepIntervals {
 public:
  explicit StepIntervals(double seconds) : wanted_seconds_(seconds) {}

  /// At the beginning of a training: exchanges the names of hosts and devices. The first step is an interval.
  void begin(const Trainer& trainer);
  /// On the chief: the training took so long before.
  void add_earlier(double seconds) { earlier_seconds_ += seconds; }
  /// After a step. Returns the line of the interval on the chief, where it has ended: {"step": ...}. `ended` says on
  /// all workers whether it has.
  struct Result {
    bool ended = false;
    /// Of the last step.
    double loss = 0;
    std::optional<RunJson> line = std::nullopt;
  };
  Result end_step(Trainer& trainer);
  /// Ends the interval, if it has steps, at the end of the training.
  Result finish(const Trainer& trainer);
  /// The parts of steps are not counted any more.
  void stop() { counting_.reset(); }
  /// What happens between them, an evaluation, belongs to no interval.
  void pause();
  void resume();

  /// The devices of all replicas, "CPU:0".
  RunJson devices() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct WorkerNames {
    std::string host;
    std::vector<std::string> devices;
  };

  double seconds() const;
  Result end_interval(const Trainer& trainer);
  /// How long the present interval is.
  double wanted_seconds() const;
  /// What this worker tells the others: its examples, the memory of the process, and
  /// for each replica that of its device and the seconds of each part.
  at::Tensor own_numbers(const Trainer& trainer) const;
  RunJson replica_json(const double* numbers, const WorkerNames& names, size_t worker, size_t replica) const;

  double wanted_seconds_;
  std::vector<WorkerNames> names_;
  std::shared_ptr<void> counting_;

  bool is_running_ = false;
  Clock::time_point resumed_at_;
  std::vector<std::vector<double>> phases_at_resume_;
  /// Of the present interval, without what runs since `resumed_at_`.
  double seconds_ = 0;
  std::vector<std::vector<double>> phases_;
  int64_t steps_ = 0;
  int64_t examples_ = 0;
  /// That of the last step.
  int64_t epoch_ = 0;
  bool is_first_ = true;
  /// Of the intervals before.
  double earlier_seconds_ = 0;
};

}  // namespace lockstep::detail
