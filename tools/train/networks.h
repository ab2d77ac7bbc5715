#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "tools/train/examples.h"
#include "tools/train/settings.h"

/// The models of `lockstep train`.
namespace lockstep::tools {

/// A model with one input and one output.
class Network : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  /// The statements of TorchScript that do what `forward` does: they replace `x`. `self` is the name of the module with
  /// the parameters: "self.body".
  virtual std::string script(const std::string& self) const = 0;
};

/// What a network is made of, without its values.
struct NetworkPlan {
  /// "mlp", "cnn", "resnet", "gpt", or a TorchScript file.
  std::string model;
  std::vector<int64_t> input_shape;
  int64_t outputs = 0;
  std::vector<int64_t> hidden;
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
};

/// Whether a name is that of a model of this command: mlp, cnn, resnet or gpt.
bool is_built_in(const std::string& model);
/// Whether a model is a file of TorchScript. ValueError for a name that is neither a file nor a model.
bool is_script_file(const std::string& model);

NetworkPlan network_plan(const Settings& settings, const DataForm& form, const std::string& model_file);

/// Makes a network with random parameters, or with those of its file.
std::shared_ptr<Network> make_network(const NetworkPlan& plan);

/// Scales inputs before it calls another network: (x - shift) * scale in the type of the scaling, then in float32. Its
/// buffers have the scaling, so that it is part of checkpoints and exported models. ValueError for inputs of another
/// number of dimensions, or of values or channels: they would be repeated to fit the scaling.
class ScaledNetwork final : public Network {
 public:
  /// `input_shape` is that of an example.
  ScaledNetwork(std::shared_ptr<Network> body, const torch::Tensor& shift, const torch::Tensor& scale,
                std::vector<int64_t> input_shape);

  torch::Tensor forward(const torch::Tensor& x) override;
  std::string script(const std::string& self) const override;

 private:
  std::shared_ptr<Network> body_;
  torch::Tensor shift_;
  torch::Tensor scale_;
  std::vector<int64_t> input_shape_;
};

}  // namespace lockstep::tools
