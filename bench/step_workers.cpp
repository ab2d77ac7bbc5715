#include "bench/step_workers.h"

#include <algorithm>
#include <chrono>

#include "bench/median.h"
#include "bench/mlp_step.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::bench {
namespace {

/// What is timed at once: long enough that the step before the first one, which is not timed, has filled the caches
/// again after the others' turn.
constexpr double kSecondsAtOnce = 0.1;
constexpr int kMinWorkerRounds = 5;

template <class Step>
double time_after_one(int repeats, Step& step) {
  step();
  return time_of(repeats, step);
}

template <class O, class Options>
StepTimes time_workers(WorkerTeam& team, const StepOptions& options, const Options& settings) {
  PlainStep<O, Options> plain(options, settings);
  StrategyStep<O, Options> one(options, MirroredStrategy({"CPU:0"}), settings);
  StrategyStep<O, Options> all(options, team.strategy(), settings);
  int repeats = 0;
  team.on_first_alone([&] {
    time_of(5, one);
    repeats = std::max(1, static_cast<int>(kSecondsAtOnce / time_after_one(3, plain)));
  });
  repeats = static_cast<int>(team.said_by_first(repeats));
  time_of(5, all);

  StepTimes times;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  const auto goes_on = [&] {
    const bool has_time = std::chrono::steady_clock::now() < end;
    return team.said_by_first(has_time || times.all.size() < kMinWorkerRounds ? 1 : 0) != 0;
  };
  while (goes_on()) {
    team.on_first_alone([&] {
      times.plain.push_back(time_after_one(repeats, plain));
      times.one.push_back(time_after_one(repeats, one));
    });
    times.alone.push_back(time_after_one(repeats, plain));
    times.all.push_back(time_after_one(repeats, all));
  }
  return times;
}

}  // namespace

StepResult bench_step_workers(WorkerTeam& team, const StepOptions& options) {
  StepOptions of_team = options;
  of_team.strategy = "multi_worker_mirrored";
  of_team.replicas = team.count();
  const int threads = detail::Access::impl(team.strategy()).threads_per_replica();
  set_threads_per_replica(threads);
  const detail::ThreadShare share(threads);
  detail::set_blas_threads(threads);
  StepTimes times = with_optimizer(of_team.optimizer, [&]<class O>(std::type_identity<O>, const auto& settings) {
    return time_workers<O>(team, of_team, settings);
  });
  set_threads_per_replica(0);
  return team.is_first() ? make_step_result(of_team, threads, times) : StepResult{};
}

}  // namespace lockstep::bench
