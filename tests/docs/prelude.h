#pragma once

#include <cmath>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "lockstep/lockstep.h"

// Blocks make values to show how, not to use them.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

namespace ls = lockstep;

/// What code blocks of the documentation may use without saying so.
namespace lockstep::tests {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("hidden", hidden);
    register_module("out", out);
  }

  torch::Tensor forward(const torch::Tensor& x) { return out->forward(torch::relu(hidden->forward(x))); }

  torch::nn::Linear hidden{8, 16};
  torch::nn::Linear out{16, 3};
};
TORCH_MODULE(Net);

/// 200 rows of three classes for training and 50 for testing, two logical CPUs, and an empty folder that is the current
/// one.
class DocsAlone : public ::testing::Test {
 protected:
  using Rows = decltype(data::from_tensor_slices(std::tuple<torch::Tensor, torch::Tensor>()));

  DocsAlone() : home_(std::filesystem::current_path()) {
    std::string folder = (std::filesystem::temp_directory_path() / "lockstep_docs_XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for " + folder);
    std::filesystem::current_path(folder);
    set_logical_devices("CPU", 2);
  }
  ~DocsAlone() override {
    const auto folder = std::filesystem::current_path();
    std::filesystem::current_path(home_);
    std::filesystem::remove_all(folder);
  }

  static torch::Tensor rows_of(int64_t count) {
    torch::manual_seed(count);
    return torch::randn({count, 8});
  }
  static torch::Tensor classes_of(const torch::Tensor& x) { return x.slice(1, 0, 3).argmax(1); }

  torch::Tensor images = rows_of(200);
  torch::Tensor labels = classes_of(images);
  torch::Tensor test_images = rows_of(50);
  Rows train = data::from_tensor_slices(std::tuple{images, labels});
  Rows test = data::from_tensor_slices(std::tuple{test_images, classes_of(test_images)});

 private:
  std::filesystem::path home_;
};

/// Also a network on two replicas.
class Docs : public DocsAlone {
 protected:
  MirroredStrategy strategy{"CPU:0", "CPU:1"};
  Scope scope{strategy};
  Module<Net> model = module<Net>();
  Optimizer<torch::optim::Adam> adam = optimizer<torch::optim::Adam>(model, 1e-2);
  Optimizer<torch::optim::SGD> sgd = optimizer<torch::optim::SGD>(model, 0.1);
};

}  // namespace lockstep::tests
