#include "bench/step.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/median.h"
#include "bench/mlp_step.h"
#include "lockstep/device/thread_share.h"

namespace lockstep::bench {
namespace {

std::vector<std::string> device_names(int replicas) {
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
  return names;
}

/// Replicas that never talk to each other: each its own model and optimizer.
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

template <class O, class Options>
StepTimes time_steps(const StepOptions& options, const Options& settings) {
  PlainStep<O, Options> plain(options, settings);
  StrategyStep<O, Options> one(options, MirroredStrategy(device_names(1)), settings);
  StrategyStep<O, Options> all(options, MirroredStrategy(device_names(options.replicas)), settings);
  AloneStep<O, Options> alone(options, settings);
  const auto warm_up = [](auto&... steps) { (time_of(5, steps), ...); };
  warm_up(plain, one, all, alone);
  const int repeats = std::max(1, static_cast<int>(0.02 / time_of(3, plain)));
  StepTimes times;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (times.plain.size() < 5 || std::chrono::steady_clock::now() < end) {
    times.plain.push_back(time_of(repeats, plain));
    times.one.push_back(time_of(repeats, one));
    times.all.push_back(time_of(repeats, all));
    times.alone.push_back(time_of(repeats, alone));
  }
  return times;
}

/// Rows enough that they do not stay in a cache, as a Dataset of global batches without end.
data::Dataset<Batch> endless_batches(const StepOptions& options) {
  constexpr int64_t kRows = 20'000;
  const Batch rows{torch::rand({kRows, kInputs}), torch::randint(kClasses, {kRows}, torch::kLong)};
  return data::from_tensor_slices(rows).shuffle(10'000).repeat().batch(options.batch * options.replicas);
}

}  // namespace

StepInputResult bench_step_input(const StepOptions& options) {
  set_logical_devices("CPU", options.replicas);
  const int threads = std::max(1, num_hardware_threads() / options.replicas);
  set_threads_per_replica(threads);
  const detail::ThreadShare share(threads);
  detail::set_blas_threads(threads);
  StrategyStep<torch::optim::SGD, torch::optim::SGDOptions> step(
      options, MirroredStrategy(device_names(options.replicas)), torch::optim::SGDOptions(0.01));
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
  set_threads_per_replica(0);
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
  return result;
}

StepResult bench_step(const StepOptions& options) {
  const int threads = std::max(1, num_hardware_threads() / options.replicas);
  set_logical_devices("CPU", options.replicas);
  set_threads_per_replica(threads);
  const detail::ThreadShare share(threads);
  detail::set_blas_threads(threads);
  StepTimes times = with_optimizer(
      options, [&]<class O>(std::type_identity<O>, const auto& settings) { return time_steps<O>(options, settings); });
  set_threads_per_replica(0);
  return make_step_result(options, threads, times);
}

}  // namespace lockstep::bench
