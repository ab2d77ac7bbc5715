#include "bench/xla_step.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>

#include <torch/cuda.h>

#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/own_process.h"
#include "bench/turns.h"
#include "bench/xla_sides.h"
#include "lockstep/base/error.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/pjrt/client.h"
#include "lockstep/xla/pjrt/find_plugin.h"

namespace lockstep::bench {
namespace {

/// Steps between two waits, as in a program that reads its loss from time to time.
constexpr int kStepsAtOnce = 10;
/// Until a step is replayed: traced twice, replayed once.
constexpr int kFirstSteps = 3;
/// Few, long rounds: threads that slept during other variants must be scheduled on cores again first.
constexpr int kXlaTurns = 24;

/// As many consecutive devices for each replica.
TPUStrategy make_strategy(const XlaStepOptions& options) {
  const int devices = options.replicas * options.logical_devices;
  const tpu::Topology topology = initialize_tpu_system(nullptr, {.num_cpu_devices = devices});
  const auto& places = topology.device_coordinates()[0];
  LOCKSTEP_CHECK_VALUE(static_cast<int>(places.size()) >= devices,
                       "[bench xla] the plugin must have a device for each logical device of each replica: devices=",
                       places.size(), ", replicas=", options.replicas, ", logical_devices=", options.logical_devices);
  tpu::DeviceAssignment::CoreAssignment cores;
  for (int i = 0; i < devices; ++i) {
    if (i % options.logical_devices == 0) cores.emplace_back();
    cores.back().push_back(places[i]);
  }
  return TPUStrategy(nullptr, tpu::DeviceAssignment(topology, std::move(cores)));
}

/// One thread for LibTorch, the other cores for what XLA starts from now on.
struct Cores {
  explicit Cores(const XlaStepOptions& options)
      : count(use_cores(options.cores > 0      ? options.cores
                        : runs_on_cpu_plugin() ? options.replicas * options.logical_devices
                                               : num_hardware_threads())),
        one(1) {
    detail::set_blas_threads(1);
  }
  int count;
  detail::ThreadShare one;
};

template <class F>
std::function<void()> several_steps(F step, const auto& side) {
  return [step, &side] {
    for (int i = 0; i < kStepsAtOnce; ++i) step();
    side.loss();
  };
}

double seconds_of_step(std::vector<double>& samples) { return median(samples) / kStepsAtOnce; }

template <class Side>
void check_replayed(const Side& side) {
  LOCKSTEP_CHECK_VALUE(side.is_replayed(), "[bench xla] the step must be replayed, but ", side.why_not());
}

/// The first steps of both sides, from one start.
template <class Eager, class Side>
void take_first_steps(Eager& eager, Side& side, XlaStepResult& result) {
  const xla::Counters before = xla::counters();
  eager.start_from(side.network());
  for (int i = 0; i < kFirstSteps; ++i) {
    eager.step();
    side.replay();
  }
  check_replayed(side);
  result.loss_error = std::abs(side.loss() - eager.loss()) / std::abs(eager.loss());
  const xla::Counters after = xla::counters();
  result.compiles = after.compiles - before.compiles;
  result.compile_seconds = after.compile_seconds - before.compile_seconds + after.emit_seconds - before.emit_seconds;
}

/// The time of the host for a step with minimal sizes.
template <class O, class Options>
void measure_host(const XlaStepOptions& options, const TPUStrategy& strategy, const Options& settings,
                  XlaStepResult& result) {
  NetworkOptions network = smallest_network(options.network);
  network.batch = 4 * options.replicas;
  XlaSide<O, Options> side(network, make_examples(network, network.batch), strategy, settings);
  for (int i = 0; i < kFirstSteps; ++i) side.replay();
  check_replayed(side);
  std::vector<double> traced;
  std::vector<double> replayed;
  Turns turns;
  turns.add(several_steps([&] { side.replay(); }, side), replayed);
  turns.add(several_steps([&] { side.trace(); }, side), traced);
  turns.take(options.seconds / 4, options.seconds / kXlaTurns);
  result.host_trace_seconds = seconds_of_step(traced);
  result.host_replay_seconds = seconds_of_step(replayed);
  const xla::Counters before = xla::counters();
  for (int i = 0; i < 10; ++i) several_steps([&] { side.replay(); }, side)();
  const xla::Counters after = xla::counters();
  result.host_launch_seconds =
      (after.launch_seconds - before.launch_seconds) / static_cast<double>(after.executions - before.executions);
}

/// Replayed steps with one logical device for each replica: in a process that has cores for these only, or beside the
/// others where devices are no cores.
template <class O, class Options>
class OneLogicalDevice {
 public:
  OneLogicalDevice(XlaStepOptions options, const Options& settings)
      : options_(std::move(options)), settings_(settings) {
    options_.cores /= options_.logical_devices;
    options_.logical_devices = 1;
    if (runs_on_cpu_plugin()) elsewhere_.emplace([this] { return make_here(); });
  }

  std::function<void()> work() {
    if (!elsewhere_) return make_here();
    return [this] { (*elsewhere_)(); };
  }

 private:
  std::function<void()> make_here() {
    cores_.emplace(options_);
    const NetworkOptions& network = options_.network;
    side_ = std::make_unique<XlaSide<O, Options>>(network, make_examples(network, network.batch),
                                                  make_strategy(options_), settings_);
    return several_steps([this] { side_->replay(); }, *side_);
  }

  XlaStepOptions options_;
  Options settings_;
  std::optional<WorkElsewhere> elsewhere_;
  std::optional<Cores> cores_;
  std::unique_ptr<XlaSide<O, Options>> side_;
};

c10::Device eager_device(const std::string& platform) {
  return platform == "cuda" && torch::cuda::is_available() ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

template <class O, class Options>
XlaStepResult measure(const XlaStepOptions& options, const Options& settings) {
  std::optional<OneLogicalDevice<O, Options>> one;
  if (options.logical_devices > 1) one.emplace(options, settings);
  const Cores cores(options);
  XlaStepResult result;
  result.options = options;
  result.cores = cores.count;
  const TPUStrategy strategy = make_strategy(options);
  result.platform = tpu_system().platform;
  const XlaBatch batch = make_examples(options.network, options.network.batch);
  XlaSide<O, Options> side(options.network, batch, strategy, settings);
  EagerSide<O, Options> eager(options.network, batch, eager_device(result.platform), settings);
  const int64_t fallbacks = xla::counters().fallbacks;
  take_first_steps(eager, side, result);

  std::vector<double> replayed, traced, plain, single;
  Turns turns;
  turns.add(several_steps([&] { side.replay(); }, side), replayed);
  turns.add(several_steps([&] { side.trace(); }, side), traced);
  turns.add(several_steps([&] { eager.step(); }, eager), plain);
  if (one) turns.add(one->work(), single);
  turns.take(options.seconds, options.seconds / kXlaTurns);
  check_replayed(side);
  result.seconds_replay = seconds_of_step(replayed);
  result.seconds_trace = seconds_of_step(traced);
  result.seconds_eager = seconds_of_step(plain);
  result.vs_eager = result.seconds_replay / result.seconds_eager;
  if (one) {
    result.seconds_one_logical = seconds_of_step(single);
    result.speedup_logical = *result.seconds_one_logical / result.seconds_replay;
    const auto bytes = side.split_bytes();
    result.split_parameter_bytes = bytes.whole;
    result.bytes_per_logical_device = bytes.per_logical_device;
  }
  measure_host<O>(options, strategy, settings, result);
  result.fallbacks = xla::counters().fallbacks - fallbacks;
  return result;
}

}  // namespace

bool runs_on_cpu_plugin() {
  return std::filesystem::path(xla::find_plugin()).filename().string().find("cpu") != std::string::npos;
}

XlaStepResult bench_xla_step(const XlaStepOptions& options) {
  const NetworkOptions& network = options.network;
  LOCKSTEP_CHECK_VALUE(network.batch % options.replicas == 0,
                       "[bench xla] replicas must get equal parts of the batch: batch=", network.batch,
                       ", replicas=", options.replicas);
  return with_optimizer(options.optimizer, [&]<class O>(std::type_identity<O>, const auto& settings) {
    return measure<O>(options, settings);
  });
}

}  // namespace lockstep::bench
