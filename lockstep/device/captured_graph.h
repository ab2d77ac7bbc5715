#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Work of one GPU that is recorded once and then started as a whole: a CUDA graph.
///
/// It records what is queued on the stream that is current when `begin` is called, and on streams that are ordered
/// after it by events. Nothing of it is computed while it is recorded. Memory that is allocated on these streams in the
/// meantime belongs to the graph. All other memory that the recorded work uses must stay where it is.
class LOCKSTEP_API CapturedGraph {
 public:
  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  virtual ~CapturedGraph() = default;

  /// Before `begin`: recorded work draws numbers from this generator, too, as its state then says at each replay. Of
  /// the device's default generator this holds always.
  virtual void add_generator(const at::Generator& generator) = 0;
  /// The current stream must not be the default one.
  virtual void begin() = 0;
  /// On the stream of `begin`, which all other streams have joined. Throws where something was called that cannot be
  /// recorded.
  virtual void end() = 0;
  /// In the place of `end`, after an exception.
  virtual void abandon() = 0;

  /// After `end`: why a replay would not do what the recorded calls do; empty where it does.
  virtual const std::string& why_not() const = 0;
  /// Whether it draws random numbers on the device.
  virtual bool draws_random_numbers() const = 0;

  /// After `end`, once: makes it ready to be replayed. Each replay copies other tensors to `inputs` before all else,
  /// and `outputs` to other tensors after it. All are contiguous and have elements; the graph keeps them.
  virtual void finish(std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs) = 0;
  /// Queues the recorded work on the current stream. `sources` and `targets` have the sizes, dtypes and device of the
  /// inputs and outputs, in their order, and are contiguous.
  virtual void replay(at::TensorList sources, at::TensorList targets) = 0;
};

/// Returns why work of the device cannot be recorded; empty where it can.
LOCKSTEP_API std::string why_no_captured_graph(c10::Device device);

/// Graphs of one pool use the same memory: no two of them may be replayed at once.
struct GraphPool {
  uint64_t first = 0;
  uint64_t second = 0;
};
LOCKSTEP_API GraphPool new_graph_pool();
LOCKSTEP_API std::unique_ptr<CapturedGraph> make_captured_graph(c10::Device device, const GraphPool& pool);

/// Frees memory that LibTorch keeps for later tensors: a graph that is recorded cannot use it.
LOCKSTEP_API void free_cached_memory(c10::Device device);

/// Whether the calling thread's current stream of the device is recorded into a graph.
LOCKSTEP_API bool is_capturing(c10::Device device);

}  // namespace lockstep::detail
