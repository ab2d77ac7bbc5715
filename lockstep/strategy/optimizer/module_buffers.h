#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "lockstep/strategy/optimizer/buffer_rule.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"

namespace lockstep::comm {
class Group;
}

/// Internal: the buffers of a module on all replicas.
namespace lockstep::detail {

class StrategyImpl;

/// Brings the buffers together that replicas have written: after each update, and at the end of each run.
///
/// A write is recognized by TensorMark. LibTorch does not count the writes of batch normalization: those of its modules
/// are recognized by `num_batches_tracked`; other small floating point buffers by a hash of their values on the CPU,
/// and are taken as written on other devices while their module trains.
class ModuleBuffers {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// Buffers are numbered in the order of `distinct(named_buffers())`. The references must outlive this.
  ModuleBuffers(const StrategyImpl& strategy, const Modules& modules);

  /// Sets the rule of all buffers whose names match; a `*` matches any text.
  void set_rule(const std::string& pattern, BufferRule rule);
  bool keeps_own(size_t buffer) const { return buffers_[buffer].rule == BufferRule::Own; }
  /// A buffer has been made equal on all replicas, outside of a run.
  void set_equal(size_t buffer);
  void set_all_equal();
  /// Called before each run.
  void begin_run();

  /// Returns the buffers of a replica, with their names, that `bring_together` makes equal on all replicas.
  std::vector<std::pair<std::string, at::Tensor>> equal_buffers(int replica) const;
  /// Inside a replica, collective: brings the buffers together that any replica has written since the last call.
  void bring_together(int replica);

 private:
  struct Buffer {
    std::string name;
    BufferRule rule = BufferRule::Mean;
    /// The buffer that counts the writes to this one; -1 for none.
    int counter = -1;
    /// Whether writes to it may not be counted at all.
    bool written_silently = false;
    /// Whether replicas may have different values, because they have run while the rule was BufferRule::Own.
    bool kept_own = false;
  };
  /// A buffer of one replica.
  struct Copy {
    at::Tensor tensor;
    const torch::nn::Module* owner = nullptr;
    TensorMark mark;
    /// The hash of its values, where it may be written silently.
    uint64_t values = 0;
    /// What the replicas had together, for BufferRule::Sum.
    at::Tensor together;
  };
  using Copies = std::vector<Copy>;

  void add_copies(const torch::nn::Module& module);
  void find_counters();
  bool is_written(const Copies& copies, size_t buffer) const;
  void take(Copies& copies, size_t buffer) const;
  void agree(const comm::Group& group, const Copies& copies, std::vector<char>& written) const;
  [[noreturn]] void throw_difference(const comm::Group& group, const Copy& copy, const Buffer& buffer) const;
  void apply(const comm::Group& group, Copies& copies, const std::vector<char>& written, BufferRule rule) const;

  const StrategyImpl& strategy_;
  /// Whether replicas are traced, with equal traces, so that all have written the same.
  const bool is_traced_;
  /// Whether replicas compute on devices of different types, which collectives cannot join.
  const bool has_mixed_devices_;
  std::vector<Buffer> buffers_;
  /// Of each local replica. A replica uses only its own.
  std::vector<Copies> copies_;
};

}  // namespace lockstep::detail
