#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/variable/central_tensor.h"

/// Internal: changes of a module between runs.
namespace lockstep::detail {

class StrategyImpl;

/// Returns the tensors without repetitions, in order: a block that is registered under two names counts once.
std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors);

/// Notices what a program changed on the first replica's module between two runs (values, `requires_grad`, dtype,
/// sizes, memory) and carries it to the other local replicas, and to tensors that are stored once.
///
/// A change is recognized by the tensor's version, memory, dtype, size and `requires_grad`, without reading values.
class ModuleChanges {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// `central` has the parameters in the order of `distinct(parameters())` where they are stored once. Both references
  /// must outlive this.
  ModuleChanges(const StrategyImpl& strategy, const Modules& modules, const std::vector<CentralTensor>& central);

  /// Carries what changed since the last call of `carry` or `set_unchanged`. Returns a hash of the changes, which is
  /// equal on workers that made the same ones; 0 if there are none.
  uint64_t carry();
  /// Takes the present state as the one to compare with.
  void set_unchanged();
  /// The next `carry` carries everything: writes through `tensor.data()` cannot be recognized.
  void carry_all_next() { carries_all_ = true; }
  /// The next `carry` carries only what it recognizes as changed: all replicas get the other values in another way.
  void leave_unchanged() { carries_all_ = false; }
  /// Buffers for which `keeps_own(buffer)` is true are carried only where a change is recognized. Buffers are numbered
  /// in the order of `distinct(named_buffers())`.
  void set_keeps_own(std::function<bool(size_t)> keeps_own) { keeps_own_ = std::move(keeps_own); }
  /// The buffers that the last `carry` made equal on all replicas.
  const std::vector<size_t>& carried_buffers() const { return carried_buffers_; }
  /// Throws if the first module has other parameters or buffers than when it was made, which other replicas cannot get.
  void check_structure() const;

 private:
  /// A parameter or buffer of the first replica as it was when a run ended.
  struct Tracked {
    std::string name;
    at::Tensor tensor;
    /// Keeps the memory's identity.
    c10::Storage storage;
    uint32_t version = 0;
    at::ScalarType dtype = at::ScalarType::Undefined;
    int64_t numel = 0;
    bool requires_grad = false;

    Tracked(std::string name_, at::Tensor tensor_) : name(std::move(name_)), tensor(std::move(tensor_)) {}

    bool is_changed() const;
    void take();
  };

  /// Whether replicas have values of their own, which are left as they are.
  bool keeps_own(size_t index) const;
  /// A program that loads a file into every replica replaces their memory, as it does on the first one.
  void return_others_to_devices() const;
  void carry_to_central(size_t index);
  void carry_to_replicas(size_t index) const;
  uint64_t hash_of(size_t index) const;

  const StrategyImpl& strategy_;
  const Modules& modules_;
  const std::vector<CentralTensor>& central_;
  std::vector<Tracked> tracked_;
  size_t num_parameters_ = 0;
  bool carries_all_ = true;
  std::function<bool(size_t)> keeps_own_;
  std::vector<size_t> carried_buffers_;
  /// The tensors of each other replica, in the order of `tracked_`.
  std::vector<std::vector<at::Tensor>> others_;
};

}  // namespace lockstep::detail
