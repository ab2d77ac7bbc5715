#include "tools/bench/bench_xla.h"

#include <memory>
#include <string>
#include <vector>

#include "bench/own_process.h"
#include "bench/xla_step.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/tpu/tpu_system.h"
#include "lockstep/xla/pjrt/client.h"
#include "lockstep/xla/pjrt/find_plugin.h"

namespace lockstep::tools {
namespace {

/// The options of `bench xla`; sizes of 0 are the model's defaults.
struct XlaCommand {
  bench::XlaStepOptions step;
  std::string model;
  int64_t batch = 0;
  int64_t width = 0;
  int64_t layers = 0;
  int64_t tokens = 0;
  int replicas = 0;
  ResultStyle style = ResultStyle::Text;
};

Json xla_json(const bench::XlaStepResult& r) {
  const bench::NetworkOptions& network = r.options.network;
  Json json{{"name", "xla"}, {"model", network.model}, {"batch", network.batch}, {"width", network.width}};
  if (network.model == "gpt") {
    json["layers"] = network.layers;
    json["tokens"] = network.tokens;
  }
  json.update({{"replicas", r.options.replicas},
               {"logical_devices", r.options.logical_devices},
               {"optimizer", r.options.optimizer},
               {"platform", r.platform},
               {"cores", r.cores},
               {"seconds_replay", r.seconds_replay},
               {"seconds_trace", r.seconds_trace},
               {"seconds_eager", r.seconds_eager},
               {"vs_eager", r.vs_eager},
               {"compile_seconds", r.compile_seconds},
               {"compiles", r.compiles},
               {"host_trace_seconds", r.host_trace_seconds},
               {"host_replay_seconds", r.host_replay_seconds},
               {"host_launch_seconds", r.host_launch_seconds},
               {"fallbacks", r.fallbacks},
               {"loss_error", r.loss_error}});
  if (r.speedup_logical) {
    json["split_parameter_bytes"] = *r.split_parameter_bytes;
    json["bytes_per_logical_device"] = *r.bytes_per_logical_device;
    json["seconds_one_logical"] = *r.seconds_one_logical;
    json["speedup_logical"] = *r.speedup_logical;
  }
  return json;
}

bench::XlaStepOptions step_of(const XlaCommand& told, const std::string& model) {
  bench::XlaStepOptions step = told.step;
  step.network = bench::default_network(model);
  if (told.batch > 0) step.network.batch = told.batch;
  if (told.width > 0) step.network.width = told.width;
  if (told.layers > 0) step.network.layers = told.layers;
  if (told.tokens > 0) step.network.tokens = told.tokens;
  if (told.replicas > 0) step.replicas = told.replicas;
  return step;
}

/// The MLP with two batches, on one and two replicas.
void add_mlps(const XlaCommand& told, std::vector<bench::XlaStepOptions>& steps) {
  const bool one_only = told.step.logical_devices > 1 || !bench::runs_on_cpu_plugin();
  for (const int64_t batch : told.batch > 0 ? std::vector{told.batch} : std::vector<int64_t>{32, 256}) {
    for (const int replicas : told.replicas > 0 ? std::vector{told.replicas}
                              : one_only        ? std::vector{1}
                                                : std::vector{1, 2}) {
      steps.push_back(step_of(told, "mlp"));
      steps.back().network.batch = batch;
      steps.back().replicas = replicas;
    }
  }
}

/// An MLP that is dominated by its matrix products, on two logical devices.
bench::XlaStepOptions wide_mlp(const XlaCommand& told) {
  bench::XlaStepOptions step = step_of(told, "mlp");
  step.network.width = 2048;
  step.network.batch = 256;
  step.logical_devices = 2;
  return step;
}

std::vector<bench::XlaStepOptions> steps_of(const XlaCommand& told) {
  std::vector<bench::XlaStepOptions> steps;
  if (told.model == "mlp") add_mlps(told, steps);
  if (!told.model.empty() && told.model != "mlp") steps.push_back(step_of(told, told.model));
  if (!told.model.empty()) return steps;
  add_mlps(told, steps);
  for (const char* const model : {"cnn", "gpt", "tiny"}) steps.push_back(step_of(told, model));
  if (bench::runs_on_cpu_plugin()) steps.push_back(wide_mlp(told));
  return steps;
}

void report_xla_steps(const XlaCommand& told) {
  LOCKSTEP_CHECK_VALUE(has_tpu_plugin(), "[bench xla] a plugin is needed; ", xla::how_to_get_a_plugin());
  for (const bench::XlaStepOptions& step : steps_of(told)) {
    const std::string what = c10::str("model=", step.network.model, ", batch=", step.network.batch,
                                      ", replicas=", step.replicas, ", logical_devices=", step.logical_devices);
    bench::in_own_process(what, [&] { print_result(xla_json(bench::bench_xla_step(step)), told.style); });
  }
}

}  // namespace

void add_xla(CLI::App& bench) {
  auto* command =
      bench.add_subcommand("xla", "Training steps that XLA compiles, replayed and traced, against LibTorch");
  auto told = std::make_shared<XlaCommand>();
  const auto add_size = [&](const char* name, auto& size, const char* text) {
    command->add_option(name, size, text)->check(CLI::PositiveNumber);
  };
  auto* model = command->add_option("--model", told->model, "mlp, cnn, gpt or tiny; default all")
                    ->check(CLI::IsMember({"mlp", "cnn", "gpt", "tiny"}));
  add_size("--batch", told->batch, "Examples of all replicas together; default 32 and 256 for the MLP");
  add_size("--width", told->width, "Width of layers; default 512 for the MLP");
  add_size("--layers", told->layers, "gpt: number of layers");
  add_size("--tokens", told->tokens, "gpt: length of an example");
  add_size("--replicas", told->replicas, "Replicas; default 1, and 2 for the MLP");
  add_size("--logical-devices", told->step.logical_devices, "Devices that compute each replica together; default 1");
  add_size("--cores", told->step.cores, "Cores for all devices of a CPU plugin; default one each");
  add_size("--seconds", told->step.seconds, "Time for each measurement; default 6");
  for (const char* const of_a_model :
       {"--batch", "--width", "--layers", "--tokens", "--replicas", "--logical-devices"}) {
    command->get_option(of_a_model)->needs(model);
  }
  command->add_option("--optimizer", told->step.optimizer, "sgd, momentum, adam or adagrad")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "momentum", "adam", "adagrad"}));
  command->add_flag_callback(
      "--json", [=] { told->style = ResultStyle::Json; }, "Print one JSON object a line");
  command->callback([=] { report_xla_steps(*told); });
}

void report_xla(ResultStyle style) {
  XlaCommand told;
  told.style = style;
  report_xla_steps(told);
}

}  // namespace lockstep::tools
