#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

struct StepOptions {
  /// "mirrored" or "central"; ignored for workers.
  std::string strategy = "mirrored";
  int64_t width = 512;
  /// Examples for each replica.
  int64_t batch = 32;
  int replicas = 2;
  /// "sgd", "momentum", "adam" or "adagrad".
  std::string optimizer = "sgd";
  /// How long everything together is measured.
  double seconds = 6.0;
};

/// Time of one training step of an MLP 784-width-width-10 in float32, all variants measured alternately in one process.
struct StepResult {
  std::string name = "step";
  StepOptions options;
  /// Cores that each replica computes with, in every measurement.
  int threads_per_replica = 1;
  /// LibTorch alone, one replica: zero_grad, forward, backward, step.
  double seconds_plain = 0;
  /// One replica under the strategy.
  double seconds_1 = 0;
  /// All replicas under the strategy, each with its own batch.
  double seconds_n = 0;
  /// All replicas at once, without any communication: what the machine allows.
  double seconds_alone = 0;
  /// seconds_1 / seconds_n.
  double efficiency = 0;
  /// seconds_1 / seconds_plain.
  double overhead_1 = 0;
  /// seconds_alone / seconds_n.
  double fraction_of_alone = 0;
  /// Memory of the parameters of all replicas, counted once where they share it; 0 where it was not counted.
  int64_t parameter_bytes = 0;
  /// Under MirroredStrategy, where the strategy is another one: its efficiency, and its seconds_n / seconds_n.
  std::optional<double> efficiency_mirrored;
  std::optional<double> against_mirrored;
};

/// The times of all rounds.
struct StepTimes {
  std::vector<double> plain;
  std::vector<double> one;
  std::vector<double> all;
  std::vector<double> alone;
  /// Under MirroredStrategy, where the strategy is another one.
  std::vector<double> one_mirrored;
  std::vector<double> all_mirrored;
};

/// Returns the medians and their ratios.
StepResult make_step_result(const StepOptions& options, int threads_per_replica, StepTimes& times);

StepResult bench_step(const StepOptions& options);

/// The step with an input pipeline (rows of tensors, shuffled, batched, distributed, prefetched by one step) against
/// the step on batches in memory.
struct StepInputResult {
  std::string name = "input/step";
  StepOptions options;
  double seconds_fixed = 0;
  double seconds_fed = 0;
  /// The cost of input: (seconds_fed - seconds_fixed) / seconds_fixed.
  double share_of_step = 0;
  double records_per_second = 0;
  double bytes_per_second = 0;
};

StepInputResult bench_step_input(const StepOptions& options);

}  // namespace lockstep::bench
