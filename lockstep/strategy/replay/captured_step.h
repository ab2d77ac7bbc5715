#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include "lockstep/device/captured_graph.h"
#include "lockstep/strategy/replay/step_replay.h"

namespace lockstep::detail {

/// Internal: a step that was recorded into a graph.
class CapturedStep {
 public:
  using Tensors = StepReplay::Tensors;

  /// What a recording has made.
  struct Recorded {
    /// What the graph reads in the place of the arguments, and the results that it writes.
    Tensors inputs;
    Tensors outputs;
    /// Memory of tensors that the function knows from elsewhere.
    std::vector<c10::Storage> used_memory;
    std::unique_ptr<CapturedGraph> graph;
    /// What the function called (CaptureWatch::calls).
    uint64_t calls = 0;
    /// Updates that one call makes on each replica.
    int64_t num_updates = 0;
  };

  /// Makes the graph ready to be replayed. Throws where there is no memory for it. Inputs were new when the function
  /// was called with them.
  CapturedStep(c10::Device device, Recorded recorded);

  /// Whether arguments share memory, one of which the function writes to.
  bool overlap(const Tensors& arguments) const;
  /// Replays the step on the current stream. Arguments that the function writes to are written to, and results are new
  /// tensors.
  void replay(const Tensors& arguments, Tensors& results);

  bool draws_random_numbers() const { return recorded_.graph->draws_random_numbers(); }
  uint64_t calls() const { return recorded_.calls; }
  int64_t num_updates() const { return recorded_.num_updates; }

 private:
  void note_written();
  void finish_graph();
  void copy_the_others(const Tensors& arguments, Tensors& results) const;

  c10::Device device_;
  Recorded recorded_;
  /// The arguments that the function writes to.
  std::vector<std::vector<char>> written_;
  bool writes_arguments_ = false;
};

/// Held while a run is recorded, by any thread of the process, and while a graph is started.
std::mutex& recording_mutex();

}  // namespace lockstep::detail
