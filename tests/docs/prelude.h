#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/cuda.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/mnist.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "lockstep/data/formats/image/image.h"
#include "lockstep/lockstep.h"
#include "tests/xla/plugin.h"

// Blocks make values to show how, not to use them.
#pragma GCC diagnostic ignored "-Wunused-value"
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

  /// 20 records with an image of 784 bytes and a label.
  static void write_digits(const std::string& path) {
    data::RecordWriter writer(path);
    for (int64_t label = 0; label < 20; ++label) {
      writer.write(data::ExampleBuilder().set("image", std::string(784, '7')).set("label", label % 10).serialize());
    }
    writer.close();
  }
  /// The 60000 images of MNIST's training files, all black, and the label 0. Returns the folder.
  static std::string write_mnist(const std::string& folder) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/train-images-idx3-ubyte")
        << std::string("\0\0\x08\x03\0\0\xea\x60\0\0\0\x1c\0\0\0\x1c", 16);
    std::ofstream(folder + "/train-labels-idx1-ubyte") << std::string("\0\0\x08\x01\0\0\xea\x60", 8);
    std::filesystem::resize_file(folder + "/train-images-idx3-ubyte", 16 + 60'000 * 28 * 28);
    std::filesystem::resize_file(folder + "/train-labels-idx1-ubyte", 8 + 60'000);
    return folder;
  }
  /// Two classes with two pictures each.
  static void write_image_folder(const std::string& folder) {
    const data::Bytes picture = data::encode_png(torch::full({240, 256, 3}, 9, torch::kUInt8));
    for (const char* name : {"cat", "dog"}) {
      const auto of_class = std::filesystem::path(folder) / name;
      std::filesystem::create_directories(of_class);
      for (const char* file : {"1.png", "2.png"}) {
        std::ofstream(of_class / file, std::ios::binary).write(picture.data(), static_cast<int64_t>(picture.size()));
      }
    }
  }

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

/// For strategies on the devices of a plugin; skipped without one.
class DocsTpu : public DocsAlone {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_PLUGIN(); }

  std::shared_ptr<TPUClusterResolver> resolver = std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = "local"});
};

}  // namespace lockstep::tests
