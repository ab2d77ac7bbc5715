#include "bench/compression_step.h"

#include <chrono>
#include <memory>

#include "bench/median.h"
#include "bench/mlp_step.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::bench {
namespace {

constexpr int kCompressedStepsAtOnce = 5;

using SgdStep = StrategyStep<torch::optim::SGD, torch::optim::SGDOptions>;

/// One kind of compression, with what was measured of it.
struct CompressedStep {
  GradientCompression compression;
  std::unique_ptr<SgdStep> step;
  std::vector<double> seconds = {};
  double bytes = 0;
};

void measure_once(CompressedStep& of, const detail::StrategyImpl& strategy) {
  (*of.step)();
  const uint64_t before = strategy.bytes_sent();
  of.seconds.push_back(time_of(kCompressedStepsAtOnce, *of.step));
  of.bytes = static_cast<double>(strategy.bytes_sent() - before) / kCompressedStepsAtOnce;
}

}  // namespace

std::vector<CompressionResult> bench_compression(WorkerTeam& team, const StepOptions& options) {
  const GradientCompression kinds[] = {compression::None{},
                                       compression::Float16{},
                                       compression::BFloat16{},
                                       compression::PowerSGD{.rank = 1, .start_step = 0},
                                       compression::PowerSGD{.rank = 4, .start_step = 0},
                                       compression::TopK{.fraction = 0.01}};
  std::vector<CompressedStep> steps;
  for (const GradientCompression& kind : kinds) {
    steps.push_back({kind, std::make_unique<SgdStep>(options, team.strategy(), torch::optim::SGDOptions(0.01),
                                                     GradientOptions{.compression = kind})});
  }
  const auto& strategy = detail::Access::impl(team.strategy());
  for (CompressedStep& each : steps) time_of(3, *each.step);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (team.said_by_first(std::chrono::steady_clock::now() < end || steps[0].seconds.size() < 3 ? 1 : 0) != 0) {
    for (CompressedStep& each : steps) measure_once(each, strategy);
  }
  std::vector<CompressionResult> results;
  const double none = median(steps[0].seconds);
  for (CompressedStep& each : steps) {
    CompressionResult result{.compression = c10::str(each.compression),
                             .seconds = median(each.seconds),
                             .seconds_none = none,
                             .bytes = each.bytes,
                             .bytes_none = steps[0].bytes};
    if (result.seconds > none) result.pays_below = (result.bytes_none - result.bytes) / (result.seconds - none);
    results.push_back(result);
  }
  return results;
}

}  // namespace lockstep::bench
