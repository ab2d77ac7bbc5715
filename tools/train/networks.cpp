#include "tools/train/networks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "bench/blocks.h"
#include "lockstep/base/error.h"
#include "tools/command/nearest.h"
#include "tools/train/script_network.h"

namespace lockstep::tools {
namespace {

namespace layers = torch::nn;

/// All digits of a number.
std::string exact(double number) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << number;
  return text.str();
}

// Statements of TorchScript. `p` names the module with the parameters.
std::string script_linear(const std::string& p) {
  return "    x = torch.linear(x, " + p + ".weight, " + p + ".bias)\n";
}
std::string script_convolution(const std::string& to, const std::string& from, const std::string& p, int64_t stride,
                               int64_t padding, bool has_bias) {
  return c10::str("    ", to, " = torch.conv2d(", from, ", ", p, ".weight, ", has_bias ? p + ".bias" : "None", ", [",
                  stride, ", ", stride, "], [", padding, ", ", padding, "])\n");
}
std::string script_batch_norm(const std::string& to, const std::string& p) {
  return c10::str("    ", to, " = torch.batch_norm(", to, ", ", p, ".weight, ", p, ".bias, ", p, ".running_mean, ", p,
                  ".running_var, self.training, 0.1, 1e-05, False)\n");
}
std::string script_layer_norm(const std::string& to, const std::string& from, const std::string& p, int64_t width) {
  return c10::str("    ", to, " = torch.layer_norm(", from, ", [", width, "], ", p, ".weight, ", p,
                  ".bias, 1e-05, True)\n");
}
constexpr const char* kScriptRelu = "    x = torch.relu(x)\n";

class Mlp final : public Network {
 public:
  explicit Mlp(const NetworkPlan& plan) {
    int64_t in = std::accumulate(plan.input_shape.begin(), plan.input_shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<int64_t> widths = plan.hidden;
    widths.push_back(plan.outputs);
    for (const int64_t out : widths) {
      layers_.push_back(register_module("layer" + std::to_string(layers_.size()), layers::Linear(in, out)));
      in = out;
    }
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = input.flatten(1);
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i]->forward(x);
      if (i + 1 < layers_.size()) x = torch::relu(x);
    }
    return x;
  }

  std::string script(const std::string& self) const override {
    std::string text = "    x = torch.flatten(x, 1)\n";
    for (size_t i = 0; i < layers_.size(); ++i) {
      text += script_linear(self + ".layer" + std::to_string(i));
      if (i + 1 < layers_.size()) text += kScriptRelu;
    }
    return text;
  }

 private:
  std::vector<layers::Linear> layers_;
};

/// Convolutions of 3x3, each followed by a pooling of 2x2 where the image is large enough, and a perceptron.
class Cnn final : public Network {
 public:
  explicit Cnn(const NetworkPlan& plan) {
    int64_t in = plan.input_shape[0];
    int64_t height = plan.input_shape[1];
    int64_t width = plan.input_shape[2];
    for (const int64_t out : plan.hidden) {
      convolutions_.push_back(register_module("convolution" + std::to_string(convolutions_.size()),
                                              layers::Conv2d(layers::Conv2dOptions(in, out, 3).padding(1))));
      pools_.push_back(height >= 4 && width >= 4);
      if (pools_.back()) {
        height /= 2;
        width /= 2;
      }
      in = out;
    }
    constexpr int64_t kFeatures = 128;
    features_ = register_module("features", layers::Linear(in * height * width, kFeatures));
    classifier_ = register_module("classifier", layers::Linear(kFeatures, plan.outputs));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = input;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      x = torch::relu(convolutions_[i]->forward(x));
      if (pools_[i]) x = torch::max_pool2d(x, {2, 2}, {2, 2});
    }
    return classifier_->forward(torch::relu(features_->forward(x.flatten(1))));
  }

  std::string script(const std::string& self) const override {
    std::string text;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      text += script_convolution("x", "x", self + ".convolution" + std::to_string(i), 1, 1, true) + kScriptRelu;
      if (pools_[i]) text += "    x = torch.max_pool2d(x, [2, 2], [2, 2])\n";
    }
    return text + "    x = torch.flatten(x, 1)\n" + script_linear(self + ".features") + kScriptRelu +
           script_linear(self + ".classifier");
  }

 private:
  std::vector<layers::Conv2d> convolutions_;
  std::vector<bool> pools_;
  layers::Linear features_{nullptr};
  layers::Linear classifier_{nullptr};
};

/// Two residual blocks of each width; the image is halved where the width changes.
class ResNet final : public Network {
 public:
  explicit ResNet(const NetworkPlan& plan) {
    int64_t in = plan.hidden[0];
    stem_ = register_module("stem", bench::strided_convolution(plan.input_shape[0], in, 3, 1));
    stem_norm_ = register_module("stem_norm", layers::BatchNorm2d(in));
    for (size_t group = 0; group < plan.hidden.size(); ++group) {
      const int64_t out = plan.hidden[group];
      for (const int64_t stride : {group == 0 ? int64_t{1} : int64_t{2}, int64_t{1}}) {
        blocks_.push_back(register_module("block" + std::to_string(blocks_.size()),
                                          std::make_shared<bench::ResidualBlock>(in, out, stride)));
        strides_.push_back(stride);
        in = out;
      }
    }
    classifier_ = register_module("classifier", layers::Linear(in, plan.outputs));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = torch::relu(stem_norm_->forward(stem_->forward(input)));
    for (const auto& block : blocks_) x = block->forward(x);
    return classifier_->forward(x.mean({2, 3}));
  }

  std::string script(const std::string& self) const override {
    std::string text = script_convolution("x", "x", self + ".stem", 1, 1, false) +
                       script_batch_norm("x", self + ".stem_norm") + kScriptRelu;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::string p = self + ".block" + std::to_string(i);
      text += script_convolution("y", "x", p + ".first", strides_[i], 1, false) +
              script_batch_norm("y", p + ".first_norm") + "    y = torch.relu(y)\n" +
              script_convolution("y", "y", p + ".second", 1, 1, false) + script_batch_norm("y", p + ".second_norm");
      if (blocks_[i]->has_shortcut()) {
        text += script_convolution("x", "x", p + ".shortcut", strides_[i], 0, false) +
                script_batch_norm("x", p + ".shortcut_norm");
      }
      text += "    x = torch.relu(y + x)\n";
    }
    return text + "    x = torch.mean(x, [2, 3])\n" + script_linear(self + ".classifier");
  }

 private:
  layers::Conv2d stem_{nullptr};
  layers::BatchNorm2d stem_norm_{nullptr};
  std::vector<std::shared_ptr<bench::ResidualBlock>> blocks_;
  std::vector<int64_t> strides_;
  layers::Linear classifier_{nullptr};
};

/// A decoder-only Transformer over characters.
class CharacterGpt final : public Network {
 public:
  explicit CharacterGpt(const NetworkPlan& plan) : width_(plan.width), heads_(plan.heads) {
    const int64_t length = plan.input_shape[0];
    tokens_ = register_module("tokens", layers::Embedding(plan.outputs, width_));
    places_ = register_module("places", layers::Embedding(length, width_));
    for (int64_t i = 0; i < plan.layers; ++i) {
      layers_.push_back(
          register_module("layer" + std::to_string(i), std::make_shared<bench::DecoderLayer>(width_, heads_)));
    }
    norm_ = register_module("norm", layers::LayerNorm(layers::LayerNormOptions({width_})));
    next_ = register_module("next", layers::Linear(width_, plan.outputs));
    later_ = register_buffer("later", torch::ones({length, length}, torch::kBool).triu(1));
    const torch::NoGradGuard no_grad;
    tokens_->weight.mul_(0.3);
    places_->weight.mul_(0.1);
  }

  torch::Tensor forward(const torch::Tensor& text) override {
    const int64_t length = text.size(1);
    const torch::Tensor later = later_.narrow(0, 0, length).narrow(1, 0, length);
    torch::Tensor x = tokens_->forward(text) + places_->weight.narrow(0, 0, length);
    for (const auto& layer : layers_) x = layer->forward(x, later);
    return next_->forward(norm_->forward(x));
  }

  std::string script(const std::string& self) const override {
    const int64_t part = width_ / heads_;
    std::string text = "    rows = x.size(0)\n    n = x.size(1)\n    later = " + self +
                       ".later.narrow(0, 0, n).narrow(1, 0, n)\n    x = torch.embedding(" + self +
                       ".tokens.weight, x) + " + self + ".places.weight.narrow(0, 0, n)\n";
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string p = self + ".layer" + std::to_string(i);
      const auto linear = [&](const std::string& name) {
        return "    y = torch.linear(y, " + p + name + ".weight, " + p + name + ".bias)\n";
      };
      text +=
          script_layer_norm("y", "x", p + ".attention_norm", width_) + linear(".queries_keys_values") +
          c10::str("    z = y.view([rows, n, 3, ", heads_, ", ", part, "]).permute([2, 0, 3, 1, 4])\n",
                   "    y = torch.matmul(z[0], z[1].transpose(2, 3)) / ", exact(std::sqrt(static_cast<double>(part))),
                   "\n    y = torch.softmax(y.masked_fill(later, float(\"-inf\")), 3)\n",
                   "    y = torch.matmul(y, z[2]).transpose(1, 2).reshape([rows, n, ", width_, "])\n") +
          linear(".output") + "    x = x + y\n" + script_layer_norm("y", "x", p + ".perceptron_norm", width_) +
          linear(".widen") + "    y = torch.gelu(y)\n" + linear(".narrow") + "    x = x + y\n";
    }
    return text + script_layer_norm("x", "x", self + ".norm", width_) + script_linear(self + ".next");
  }

 private:
  int64_t width_;
  int64_t heads_;
  layers::Embedding tokens_{nullptr};
  layers::Embedding places_{nullptr};
  std::vector<std::shared_ptr<bench::DecoderLayer>> layers_;
  layers::LayerNorm norm_{nullptr};
  layers::Linear next_{nullptr};
  torch::Tensor later_;
};

std::string rest_of_shape(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += ", " + std::to_string(size);
  return text;
}

}  // namespace

bool is_built_in(const std::string& model) {
  return model == "mlp" || model == "cnn" || model == "resnet" || model == "gpt";
}

bool is_script_file(const std::string& model) {
  if (is_built_in(model)) return false;
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_regular_file(model), "[train] the model must be ",
                       enumeration({"mlp", "cnn", "resnet", "gpt", "a file of TorchScript"}, "or"), ": model=", model,
                       did_you_mean(model, {"mlp", "cnn", "resnet", "gpt"}));
  return true;
}

NetworkPlan network_plan(const Settings& settings, const DataForm& form, const std::string& model_file) {
  const std::string model = settings.text("model");
  NetworkPlan plan{model, form.input_shape, form.outputs(), settings.integers("hidden"), 0, 0, 0};
  if (is_script_file(model_file.empty() ? model : model_file)) {
    plan.model = model_file.empty() ? model : model_file;
    // Characters of a text may be fewer than all bytes; losses of numbers compare the shapes.
    plan.outputs = form.task == Task::Classes ? form.num_classes : 0;
    return plan;
  }
  const std::string shape = c10::str(at::IntArrayRef(form.input_shape));
  if (model == "gpt") {
    LOCKSTEP_CHECK_VALUE(form.task == Task::Sequence, "[train] gpt learns text: data=", form.kind,
                         "; use mlp, cnn or resnet");
    plan.width = settings.integer("width");
    plan.layers = settings.integer("layers");
    plan.heads = settings.integer("heads");
    LOCKSTEP_CHECK_VALUE(plan.width % plan.heads == 0, "[train] --heads must divide --width: heads=", plan.heads,
                         ", width=", plan.width);
    return plan;
  }
  LOCKSTEP_CHECK_VALUE(form.task != Task::Sequence, "[train] ", model,
                       " does not learn text: use gpt; a table must be a .csv file with a header");
  LOCKSTEP_CHECK_VALUE(model == "mlp" || form.input_shape.size() == 3, "[train] ", model,
                       " learns images, [channels, height, width]: shape=", shape,
                       "; give --input-shape, such as 1x8x8, or use mlp");
  if (plan.hidden.empty()) {
    plan.hidden = model == "mlp"   ? std::vector<int64_t>{128, 64}
                  : model == "cnn" ? std::vector<int64_t>{32, 64}
                                   : std::vector<int64_t>{16, 32, 64};
  }
  return plan;
}

std::shared_ptr<Network> make_network(const NetworkPlan& plan) {
  if (plan.model == "mlp") return std::make_shared<Mlp>(plan);
  if (plan.model == "cnn") return std::make_shared<Cnn>(plan);
  if (plan.model == "resnet") return std::make_shared<ResNet>(plan);
  if (plan.model == "gpt") return std::make_shared<CharacterGpt>(plan);
  return std::make_shared<ScriptNetwork>(plan.model, plan.outputs);
}

ScaledNetwork::ScaledNetwork(std::shared_ptr<Network> body, const torch::Tensor& shift, const torch::Tensor& scale,
                             std::vector<int64_t> input_shape)
    : body_(register_module("body", std::move(body))),
      shift_(register_buffer("shift", shift.clone())),
      scale_(register_buffer("scale", scale.clone())),
      input_shape_(std::move(input_shape)) {}

torch::Tensor ScaledNetwork::forward(const torch::Tensor& x) {
  LOCKSTEP_CHECK_VALUE(x.dim() == static_cast<int64_t>(input_shape_.size()) + 1 && x.size(1) == input_shape_[0],
                       "[train] the model takes examples of another shape: shape=", x.sizes().slice(1),
                       ", shape of the model=", at::IntArrayRef(input_shape_));
  return body_->forward(((x.to(shift_.scalar_type()) - shift_) * scale_).to(torch::kFloat));
}

std::string ScaledNetwork::script(const std::string& self) const {
  const int float32 = static_cast<int>(torch::kFloat);
  return c10::str("    assert x.dim() == ", input_shape_.size() + 1, " and x.size(1) == ", input_shape_[0],
                  ", \"the model takes inputs of the shape [rows", rest_of_shape(input_shape_), "]\"\n",
                  "    x = ((x.type_as(", self, ".shift) - ", self, ".shift) * ", self, ".scale).to(", float32, ")\n") +
         body_->script(self + ".body");
}

}  // namespace lockstep::tools
