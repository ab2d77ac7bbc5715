#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>

#include "tools/train/networks.h"

namespace lockstep::tools {

/// A TorchScript model whose parameters and buffers are those of a module, so that an optimizer trains them. Each
/// replica loads its own.
class ScriptNetwork final : public Network {
 public:
  /// DataError where the file is no TorchScript model with a method `forward`. `outputs`: the least number of outputs
  /// that it must return for an example.
  explicit ScriptNetwork(const std::string& file, int64_t outputs = 0);

  torch::Tensor forward(const torch::Tensor& x) override;
  std::string script(const std::string& self) const override { return "    x = " + self + ".forward(x)\n"; }

  /// The TorchScript model with the present parameters.
  torch::jit::Module present();

 private:
  /// A tensor of both: the module that has it in TorchScript, and ours.
  struct Shared {
    torch::jit::Module owner;
    std::string name;
    torch::nn::Module* ours;
    bool is_parameter;
  };

  void share(torch::jit::Module& script, torch::nn::Module& ours);
  /// Gives TorchScript the tensors that something has put in place of ours, such as those on another device.
  void refresh();

  torch::jit::Module script_;
  int64_t outputs_;
  std::vector<Shared> shared_;
};

/// Returns a TorchScript model that computes what the network does, with its parameters: Python's `torch.jit.load`
/// reads what its `save` writes. It is in evaluation mode.
torch::jit::Module to_script(Network& network);

/// The name of the file inside of a TorchScript file, and of the text inside of a safetensors file, that has the plan.
inline constexpr const char* kPlanInside = "lockstep.plan";

/// Internal: loads a file; DataError that names it where it is no TorchScript. `extra` is the text of the file of this
/// name inside, where there is one.
torch::jit::Module load_script(const std::string& file, const std::string& extra_name = "",
                               std::string* extra = nullptr);

}  // namespace lockstep::tools
