#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/device/captured_graph.h"
#include "lockstep/strategy/replay/capture_watch.h"
#include "lockstep/strategy/replay/captured_step.h"
#include "lockstep/strategy/replay/step_replay.h"

namespace lockstep::detail {

class StrategyImpl;

/// Internal: a run that is recorded into a graph, of which nothing is computed.
///
/// It has the strategy's turn, and is the only recording in the process, for as long as it lives. The run then ends
/// with `finish`; it ends with `drop` where the run threw or differs, or `finish` has returned null.
class RunRecording {
 public:
  using Tensors = StepReplay::Tensors;

  /// Held from before the stream of recordings and LibTorch's stored memory are used.
  struct Turn {
    explicit Turn(StrategyImpl& strategy);
    std::unique_lock<std::recursive_mutex> of_strategy;
    std::unique_lock<std::mutex> of_process;
  };

  struct Place {
    c10::Device device;
    GraphPool pool;
    /// The stream on which is recorded.
    c10::Stream stream;
    /// From which replicas draw random numbers. One for each replica, where there are several.
    std::vector<at::Generator> generators;
  };

  /// Records the next run of the strategy. Its function is called with `inputs`, which are new tensors, in the place of
  /// `arguments`.
  RunRecording(StrategyImpl& strategy, Turn turn, const Place& place, Tensors inputs, Tensors arguments);
  ~RunRecording();
  RunRecording(const RunRecording&) = delete;
  RunRecording& operator=(const RunRecording&) = delete;

  const Tensors& inputs() const { return inputs_; }
  const Tensors& arguments() const { return arguments_; }

  /// Whether the function has called what it called when `step` was recorded.
  bool calls_as(const CapturedStep& step) const { return watch_.calls() == step.calls(); }
  /// Why a replay would not do what the run does; empty where it would. `before`, which may be null, is the step that
  /// was recorded before.
  std::string why_not_recorded(const CapturedStep* before) const;
  /// Returns what has been recorded, ready to be replayed; null, with the reason, where there is no memory for it, or
  /// arguments share memory.
  std::unique_ptr<CapturedStep> finish(const Tensors& results, std::string& why_not);
  struct Failure {
    std::string why;
    /// Whether it is what the function does. Memory that ran out, for example, is not.
    bool is_of_function = false;
  };
  /// Inside of a catch block: why the run threw.
  Failure why_failed() const;
  /// What the run has changed on the host becomes what it was before.
  void drop();

 private:
  std::string why_not_of_gradients() const;

  StrategyImpl& strategy_;
  const Turn turn_;
  const c10::Device device_;
  Tensors inputs_;
  Tensors arguments_;
  const int64_t updates_before_;
  std::unique_ptr<CapturedGraph> graph_;
  const CaptureWatch watch_;
  /// The state of the host's random numbers before, and how often generators had been seeded.
  const at::Tensor numbers_before_;
  const uint64_t seedings_before_;
  /// Parameters, with the gradients that they had before.
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
  const c10::StreamGuard on_stream_;
};

}  // namespace lockstep::detail
