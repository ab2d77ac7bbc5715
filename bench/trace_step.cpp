#include "bench/trace_step.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/turns.h"
#include "lockstep/base/trace/trace_writer.h"

namespace lockstep::bench {
namespace {

/// Traces go to new folders below this one.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_bench_trace_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TraceFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  /// Calls `work` while everything is written.
  template <class Work>
  auto traced(Work&& work) {
    trace::start_trace(
        {.first_step = 1, .last_step = int64_t{1} << 60, .folder = path_ + "/" + std::to_string(++count_)});
    const double seconds = work();
    trace::finish_trace();
    std::filesystem::remove_all(path_ + "/" + std::to_string(count_));
    return seconds;
  }

 private:
  std::string path_;
  int count_ = 0;
};

double time_of_span() {
  return time_of(100'000, [] { const trace::Span span(trace::Phase::Other, "span"); });
}

}  // namespace

TraceStepResult bench_trace_step(const StepOptions& options) {
  const CpuReplicas replicas(options.replicas);
  StrategyStep<torch::optim::SGD, torch::optim::SGDOptions> step(
      options, cpu_strategy(options.strategy, options.replicas), torch::optim::SGDOptions(0.01));
  const auto work = [&] { step(); };
  TraceFolder folder;
  time_of(20, work);
  const int repeats = std::max(1, static_cast<int>(0.5 / time_of(20, work)));
  std::vector<double> off, counting, tracing;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (off.size() < 5 || std::chrono::steady_clock::now() < end) {
    off.push_back(time_of(repeats, work));
    {
      const trace::PhaseCounting counted;
      counting.push_back(time_of(repeats, work));
    }
    tracing.push_back(folder.traced([&] { return time_of(repeats, work); }));
  }
  TraceStepResult result;
  result.options = options;
  result.seconds_off = median(off);
  result.seconds_counting = median(counting);
  result.seconds_tracing = median(tracing);
  result.share_counting = result.seconds_counting / result.seconds_off - 1;
  result.share_tracing = result.seconds_tracing / result.seconds_off - 1;
  result.seconds_span_off = time_of_span();
  result.seconds_span_tracing = folder.traced(time_of_span);
  return result;
}

}  // namespace lockstep::bench
