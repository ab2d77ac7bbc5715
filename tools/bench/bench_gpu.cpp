#include "tools/bench/bench_gpu.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bench/gpu.h"
#include "lockstep/base/error.h"
#include "tools/print_result.h"

namespace lockstep::tools {
namespace {

/// The options of `bench gpu`.
struct GpuCommand {
  bench::GpuOptions options;
  /// Empty: all.
  std::vector<std::string> only;
  ResultStyle style = ResultStyle::Text;
};

Json gpu_json(const bench::GpuLine& line) {
  Json json;
  for (const auto& [name, value] : line) {
    std::visit([&](const auto& of_type) { json[name] = of_type; }, value);
  }
  return json;
}

/// Prints lines as they come, and counts those that could not be measured.
class GpuReport {
 public:
  explicit GpuReport(const GpuCommand& command) : command_(command) {}

  void print(const bench::GpuLine& line) const { print_result(gpu_json(line), command_.style); }

  /// `start` begins the line where the measurement fails.
  void measure(const char* kind, const bench::GpuLine& start, const std::function<bench::GpuLine()>& work) {
    if (!command_.only.empty() && std::find(command_.only.begin(), command_.only.end(), kind) == command_.only.end())
      return;
    try {
      print(work());
    } catch (const std::exception& error) {
      ++failed_;
      bench::GpuLine line = start;
      const std::string text = error.what();
      line.emplace_back("failed", text.substr(0, text.find('\n')));
      print(line);
    }
  }

  void check() const {
    LOCKSTEP_CHECK_VALUE(failed_ == 0, "[bench gpu] measurements failed: failed=", failed_,
                         "; the field `failed` of their lines says why");
  }

 private:
  const GpuCommand& command_;
  int failed_ = 0;
};

void report_gpu(const GpuCommand& command) {
  bench::check_gpu();
  const bench::GpuOptions& options = command.options;
  GpuReport report(command);
  report.print(bench::describe_gpu());
  for (const bench::GpuCase& each : bench::gpu_cases(options.filter)) {
    report.measure("eager", bench::describe("gpu/eager", each), [&] { return bench::bench_gpu_eager(each, options); });
  }
  for (const bench::GpuCase& each : bench::gpu_cases(options.filter)) {
    report.measure("captured", bench::describe("gpu/captured", each),
                   [&] { return bench::bench_gpu_captured(each, options); });
  }
  report.measure("memory", {{"name", "gpu/memory"}}, [&] { return bench::bench_gpu_memory(options); });
  report.measure("all_reduce", {{"name", "gpu/all_reduce"}}, [&] { return bench::bench_gpu_all_reduce(options); });
  for (const bench::GpuCase& each : bench::large_gpu_cases(options.filter)) {
    report.measure("replicas", bench::describe("gpu/replicas", each),
                   [&] { return bench::bench_gpu_replicas(each, options); });
  }
  report.measure("overlap", {{"name", "gpu/overlap"}}, [&] { return bench::bench_gpu_overlap(options); });
  report.check();
}

}  // namespace

void add_bench_gpu(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "gpu",
      "Steps on a GPU against LibTorch alone, captured ones against a CUDA graph written by hand, and collectives");
  auto gpu = std::make_shared<GpuCommand>();
  const auto add_names = [&](const char* name, std::vector<std::string>& names, const char* text,
                             const std::vector<std::string>& known) {
    command->add_option(name, names, text)->delimiter(',')->check(CLI::IsMember(known));
  };
  add_names("--only", gpu->only, "eager, captured, memory, all_reduce, replicas, overlap; default all",
            {"eager", "captured", "memory", "all_reduce", "replicas", "overlap"});
  bench::GpuCaseFilter& filter = gpu->options.filter;
  add_names("--model", filter.models, "mlp, resnet18, gpt; default all; of eager, captured and replicas",
            {"mlp", "resnet18", "gpt"});
  add_names("--optimizer", filter.optimizers, "sgd, adam; default both; of eager and captured", {"sgd", "adam"});
  add_names("--compute", filter.computes, "float32, bfloat16; default both; of eager and captured",
            {"float32", "bfloat16"});
  command->add_option("--seconds", gpu->options.seconds, "Time for each measurement, after its warm-up")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--captured-steps", gpu->options.captured_steps, "memory: steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000'000));
  command->add_flag_callback(
      "--json", [=] { gpu->style = ResultStyle::Json; }, "Print one JSON object per line");
  command->callback([=] { report_gpu(*gpu); });
}

}  // namespace lockstep::tools
