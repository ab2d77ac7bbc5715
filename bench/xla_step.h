#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/xla_network.h"

namespace lockstep::bench {

struct XlaStepOptions {
  NetworkOptions network;
  int replicas = 1;
  /// Of each replica.
  int logical_devices = 1;
  /// Cores that the process may use, on a CPU plugin; 0: one for each device.
  int cores = 0;
  /// "sgd", "momentum", "adam" or "adagrad".
  std::string optimizer = "sgd";
  /// How long everything together is measured.
  double seconds = 6.0;
};

/// Time of one training step under TPUStrategy, with batches on the devices, all variants measured alternately.
struct XlaStepResult {
  XlaStepOptions options;
  /// "cpu", "cuda" or "tpu".
  std::string platform;
  int cores = 0;
  /// Declared pure: the program is started, the function is not run.
  double seconds_replay = 0;
  /// The function is run, and traced, at every step.
  double seconds_trace = 0;
  /// LibTorch alone on the whole batch: on one thread, or on the GPU.
  double seconds_eager = 0;
  /// seconds_replay / seconds_eager: below 1 is faster.
  double vs_eager = 0;
  /// Time that XLA takes to compile the step.
  double compile_seconds = 0;
  int64_t compiles = 0;
  /// The same operations with minimal sizes: the cost of a step on the host, and the part of a replay that is the
  /// launch.
  double host_trace_seconds = 0;
  double host_replay_seconds = 0;
  double host_launch_seconds = 0;
  /// Functions of LibTorch that ran on the CPU instead, in all steps.
  int64_t fallbacks = 0;
  /// |loss - LibTorch's| / LibTorch's after the first three steps from the same start.
  double loss_error = 0;
  /// Of a replica's parameters: those that are split, whole, and the most that a logical device has of them.
  std::optional<int64_t> split_parameter_bytes;
  std::optional<int64_t> bytes_per_logical_device;
  /// The same replicas with one logical device each, on as many cores as that needs; and the ratio of the two.
  std::optional<double> seconds_one_logical;
  std::optional<double> speedup_logical;
};

/// Measures in the calling process, which must not have started a plugin or threads: cores and devices are set once in
/// a process. c10::ValueError where there is no plugin.
XlaStepResult bench_xla_step(const XlaStepOptions& options);

/// Whether the plugin is one for CPUs, by its name: its devices are threads, in any number.
bool runs_on_cpu_plugin();

}  // namespace lockstep::bench
