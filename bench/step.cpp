#include "bench/step.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/turns.h"

namespace lockstep::bench {
namespace {

/// Replicas without communication: each has its own model and optimizer.
template <class O, class Options>
class AloneStep {
 public:
  AloneStep(const StepOptions& options, const Options& settings)
      : threads_(std::vector<c10::Device>(options.replicas, c10::Device(c10::kCPU))) {
    for (int i = 0; i < options.replicas; ++i) {
      steps_.push_back(std::make_unique<PlainStep<O, Options>>(options, settings));
    }
  }

  void operator()() {
    threads_.run([&](int replica) { (*steps_[replica])(); }, [] {}, [](int, std::exception_ptr) {});
  }

 private:
  detail::ReplicaThreads threads_;
  std::vector<std::unique_ptr<PlainStep<O, Options>>> steps_;
};

/// A strategy with one replica, and with all of them.
template <class O, class Options>
struct OneAndAll {
  OneAndAll(const StepOptions& options, const std::string& strategy, const Options& settings)
      : one(options, cpu_strategy(strategy, 1), settings),
        all(options, cpu_strategy(strategy, options.replicas), settings) {}

  StrategyStep<O, Options> one;
  StrategyStep<O, Options> all;
};

struct MeasuredSteps {
  StepTimes times;
  int64_t parameter_bytes = 0;
};

template <class O, class Options>
MeasuredSteps time_steps(const StepOptions& options, const Options& settings) {
  PlainStep<O, Options> plain(options, settings);
  AloneStep<O, Options> alone(options, settings);
  OneAndAll<O, Options> chosen(options, options.strategy, settings);
  std::optional<OneAndAll<O, Options>> mirrored;
  MeasuredSteps measured;
  StepTimes& times = measured.times;
  Turns turns;
  turns.add([&] { plain(); }, times.plain);
  turns.add([&] { chosen.one(); }, times.one);
  turns.add([&] { chosen.all(); }, times.all);
  turns.add([&] { alone(); }, times.alone);
  if (options.strategy != "mirrored") {
    mirrored.emplace(options, "mirrored", settings);
    turns.add([&] { mirrored->one(); }, times.one_mirrored);
    turns.add([&] { mirrored->all(); }, times.all_mirrored);
  }
  turns.take(options.seconds);
  measured.parameter_bytes = chosen.all.parameter_bytes();
  return measured;
}

/// Rows enough that they do not stay in a cache, as a Dataset of global batches without end.
data::Dataset<Batch> endless_batches(const StepOptions& options) {
  constexpr int64_t kRows = 20'000;
  const Batch rows{torch::rand({kRows, kInputs}), torch::randint(kClasses, {kRows}, torch::kLong)};
  return data::from_tensor_slices(rows).shuffle(10'000).repeat().batch(options.batch * options.replicas);
}

}  // namespace

StepInputResult bench_step_input(const StepOptions& options) {
  const CpuReplicas replicas(options.replicas);
  StrategyStep<torch::optim::SGD, torch::optim::SGDOptions> step(
      options, cpu_strategy(options.strategy, options.replicas), torch::optim::SGDOptions(0.01));
  auto input = step.strategy().distribute_dataset(endless_batches(options)).iterator();
  const auto fixed = [&] { step(); };
  const auto fed = [&] { step.step_on(input.get_next()); };
  time_of(20, fed);
  const int repeats = std::max(1, static_cast<int>(0.2 / time_of(20, fixed)));
  std::vector<double> fixed_samples;
  std::vector<double> fed_samples;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (fixed_samples.size() < 5 || std::chrono::steady_clock::now() < end) {
    fixed_samples.push_back(time_of(repeats, fixed));
    fed_samples.push_back(time_of(repeats, fed));
  }
  StepInputResult result;
  result.options = options;
  result.seconds_fixed = median(fixed_samples);
  result.seconds_fed = median(fed_samples);
  result.share_of_step = result.seconds_fed / result.seconds_fixed - 1;
  result.records_per_second = static_cast<double>(options.batch * options.replicas) / result.seconds_fed;
  result.bytes_per_second = result.records_per_second * kInputs * sizeof(float);
  return result;
}

StepResult make_step_result(const StepOptions& options, int threads_per_replica, StepTimes& times) {
  StepResult result;
  result.options = options;
  result.threads_per_replica = threads_per_replica;
  result.seconds_plain = median(times.plain);
  result.seconds_1 = median(times.one);
  result.seconds_n = median(times.all);
  result.seconds_alone = median(times.alone);
  result.efficiency = result.seconds_1 / result.seconds_n;
  result.overhead_1 = result.seconds_1 / result.seconds_plain;
  result.fraction_of_alone = result.seconds_alone / result.seconds_n;
  if (!times.all_mirrored.empty()) {
    const double all_mirrored = median(times.all_mirrored);
    result.efficiency_mirrored = median(times.one_mirrored) / all_mirrored;
    result.against_mirrored = all_mirrored / result.seconds_n;
  }
  return result;
}

StepResult bench_step(const StepOptions& options) {
  const CpuReplicas replicas(options.replicas);
  MeasuredSteps measured = with_optimizer(options.optimizer, [&]<class O>(std::type_identity<O>, const auto& settings) {
    return time_steps<O>(options, settings);
  });
  StepResult result = make_step_result(options, replicas.threads_per_replica(), measured.times);
  result.parameter_bytes = measured.parameter_bytes;
  return result;
}

}  // namespace lockstep::bench
