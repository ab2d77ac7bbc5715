#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/Storage.h>
#include <torch/nn/module.h>

/// Internal: makes the modules of replicas independent of each other.
namespace lockstep::detail {

/// Separates modules that were made from the same tensors, submodules or memory: each gets its own, and what was one
/// tensor or one memory within a module stays one. A tensor that somebody outside of the modules holds is copied for
/// the first replica, too, so that training does not write it.
///
/// A tensor that two modules hold can be replaced only where all its places in the module are known
/// (module_handles.h): the number of references that making the module added says whether they are. Other cases are
/// errors that name the parameter.
class ReplicaSeparation {
 public:
  using ModulePtr = std::shared_ptr<torch::nn::Module>;

  /// `stores_once`: parameters of other replicas than the first get other memory later, and need none of their own.
  explicit ReplicaSeparation(bool stores_once) : stores_once_(stores_once) {}

  /// Called before each module is made.
  void begin();
  /// Returns a module that shares nothing with those of earlier calls: `made`, or a clone of the first.
  ModulePtr separated(ModulePtr made);

 private:
  struct KnownTensor {
    at::Tensor tensor;
    size_t uses = 0;
  };
  struct KnownMemory {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    size_t uses = 0;
  };
  struct Registered {
    std::string name;
    at::Tensor tensor;
    bool is_parameter = false;
  };
  using Tensors = std::vector<Registered>;

  static Tensors registered(const torch::nn::Module& module);
  bool shares_modules(const torch::nn::Module& made) const;
  ModulePtr clone_of_first() const;
  /// The name of a tensor of an earlier module that `made` holds in a place that is not known; empty if there is none.
  std::string name_in_unknown_place(torch::nn::Module& made) const;
  void replace_shared_tensors(torch::nn::Module& made, bool is_clone);
  void replace_shared_memory(torch::nn::Module& made);
  void restore_ties(torch::nn::Module& clone) const;
  void remember(const torch::nn::Module& module);

  const bool stores_once_;
  std::vector<ModulePtr> modules_;
  std::unordered_map<const c10::TensorImpl*, KnownTensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, KnownMemory> memory_;
};

}  // namespace lockstep::detail
