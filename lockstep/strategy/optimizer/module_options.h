#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::detail {

/// Internal: what the computation of a module depends on besides values, and what a program may change between two
/// steps: `requires_grad` and the memory of parameters and buffers, and the options of LibTorch's own modules, such as
/// `p` of dropout and `momentum` of batch normalization. Members of a user's own class are not known.
class ModuleOptions {
 public:
  /// Of the modules of all replicas.
  explicit ModuleOptions(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);

  /// A number that changes when one of them does. For this process only.
  size_t fingerprint() const;

 private:
  struct Watched {
    /// Keeps it alive.
    std::shared_ptr<torch::nn::Module> module;
    /// The module as its own class, and the function that hashes its options.
    const void* impl;
    size_t (*hash)(const void* impl);
  };
  std::vector<Watched> watched_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep::detail
