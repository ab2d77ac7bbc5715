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

  /// Queues the recorded work on the current stream.
  virtual void replay() = 0;
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

/// Whether the calling thread's current stream of the device is recorded into a graph.
LOCKSTEP_API bool is_capturing(c10::Device device);

/// Copies tensors to as many others on one GPU, of the same sizes and dtypes, small ones in one kernel.
LOCKSTEP_API void copy_together(at::TensorList sources, at::TensorList targets);

}  // namespace lockstep::detail
