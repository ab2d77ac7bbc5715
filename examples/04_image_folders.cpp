// Trains on a folder of images with one folder for each class. Files are decoded and varied on several threads while
// the replicas compute; images of different sizes become batches of one size.
//
//   build/release/bin/image_folders          writes PNG files of four shapes to a temporary folder and trains on them
//   build/release/bin/image_folders DIR      your images: DIR/train/CLASS/*.{jpg,png} and DIR/test/CLASS/*.{jpg,png}
//
// Prints the classes, the loss and accuracy of each epoch, and the answer for one file. Fails below an accuracy of 0.9
// on the four shapes.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <string>
#include <tuple>

#include <torch/torch.h>

namespace ls = lockstep;
namespace nn = torch::nn;
namespace fs = std::filesystem;

constexpr int64_t kSize = 24;  // rows and columns that the network sees
constexpr int64_t kGlobalBatch = 16;
constexpr int64_t kEpochs = 14;
constexpr double kRequiredAccuracy = 0.9;

// ---- The images

// One of four shapes, in a random colour, size and place, on a dark picture with noise: uint8 [height, width, 3].
torch::Tensor draw(const std::string& shape) {
  const auto random = [](double low, double high) { return low + (high - low) * torch::rand({1}).item<double>(); };
  const auto height = static_cast<int64_t>(random(28, 44)), width = static_cast<int64_t>(random(28, 44));
  const auto down = (torch::arange(height, torch::kFloat) - random(0.4, 0.6) * height).view({height, 1}).abs();
  const auto right = (torch::arange(width, torch::kFloat) - random(0.4, 0.6) * width).view({1, width}).abs();
  const double radius = random(8, 11);
  torch::Tensor inside;
  if (shape == "cross") inside = torch::minimum(down, right).lt(radius / 4) & torch::maximum(down, right).lt(radius);
  if (shape == "disc") inside = (down.square() + right.square()).lt(radius * radius);
  if (shape == "ring") inside = ((down.square() + right.square()).sqrt() - radius).abs().lt(radius / 4);
  if (shape == "square") inside = torch::maximum(down, right).lt(radius * 0.9);
  const auto picture = 40 * torch::rand({height, width, 3}) + inside.unsqueeze(2) * (120 + 90 * torch::rand({3}));
  return picture.to(torch::kByte);
}

void write_images(const fs::path& folder, int64_t of_each_class) {
  for (const std::string shape : {"cross", "disc", "ring", "square"}) {
    fs::create_directories(folder / shape);
    for (int64_t i = 0; i < of_each_class; ++i) {
      std::ofstream(folder / shape / (std::to_string(i) + ".png"), std::ios::binary)
          << ls::data::encode_png(draw(shape)).str();
    }
  }
}

// What the network sees of an image: the same size for all, and for training a random part of it, mirrored or not.
std::tuple<torch::Tensor, int64_t> prepare(torch::Tensor image, int64_t label, bool is_training) {
  image = ls::data::resize_shorter_side(image, kSize + 4);
  image = is_training ? ls::data::random_crop(image, kSize, kSize) : ls::data::center_crop(image, kSize, kSize);
  if (is_training) ls::data::random_horizontal_flip_(image);
  return {ls::data::normalize(image, {.mean = {0.5}, .std = {0.25}}), label};
}

// ---- The training

nn::Sequential network(int64_t classes) {
  const auto conv = [](int64_t in, int64_t out) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(2).padding(1));
  };
  return nn::Sequential(conv(3, 16), nn::ReLU(), conv(16, 32), nn::ReLU(), conv(32, 32), nn::ReLU(), nn::Flatten(),
                        nn::Linear(32 * (kSize / 8) * (kSize / 8), classes));
}

double train(const ls::Strategy& strategy, const fs::path& folder) {
  const auto training = ls::data::image_folder(folder / "train");
  const auto testing = ls::data::image_folder(folder / "test", {.classes = training.classes, .shuffle = false});
  std::cout << training.files.size() << " files for training, " << testing.files.size() << " for testing; classes:";
  for (const std::string& name : training.classes) std::cout << ' ' << name;
  std::cout << std::endl;
  const auto batches = training.dataset
                           .map([](torch::Tensor image, int64_t label) { return prepare(image, label, true); },
                                {.num_threads = ls::num_hardware_threads()})
                           .batch(kGlobalBatch);
  const auto test_batches =
      testing.dataset.map([](torch::Tensor image, int64_t label) { return prepare(image, label, false); })
          .batch(kGlobalBatch);

  auto scope = strategy.scope();
  const auto classes = static_cast<int64_t>(training.classes.size());
  auto model = ls::module_from([&] { return network(classes); });
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  const auto steps = kEpochs * (static_cast<int64_t>(training.files.size()) / kGlobalBatch + 1);
  ls::Trainer trainer(strategy, model, adam, ls::losses::cross_entropy(),
                      {.metrics = {ls::metrics::sparse_categorical_accuracy("accuracy")},
                       .schedules = {ls::schedules::one_cycle(6e-3, steps)}});
  const auto history = trainer.fit(batches, {.epochs = kEpochs, .validation = test_batches, .verbose = false});
  for (size_t i = 0; i < history.epochs.size(); ++i) {
    const auto& logs = history.epochs[i];
    std::cout << "epoch " << i + 1 << ": loss " << logs.at("loss") << ", on the test images " << logs.at("val_loss")
              << ", accuracy " << logs.at("val_accuracy") << '\n';
  }
  const auto answer = trainer.predict(test_batches)[0].argmax().item<int64_t>();
  std::cout << fs::relative(testing.files[0], folder).string() << " is a "
            << training.classes[static_cast<size_t>(answer)] << std::endl;
  return history.epochs.back().at("val_accuracy");
}

int main(int argc, char** argv) try {
  std::cout << std::fixed << std::setprecision(3);
  torch::manual_seed(1);
  ls::set_logical_devices("CPU", 2);
  const ls::MirroredStrategy strategy;  // every GPU, or else both logical CPUs
  if (argc > 1) {
    train(strategy, argv[1]);
    return EXIT_SUCCESS;
  }
  std::string name = (fs::temp_directory_path() / "image_folders_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the folder " + name);
  write_images(name + "/train", 60);
  write_images(name + "/test", 25);
  const double accuracy = train(strategy, name);
  fs::remove_all(name);
  if (accuracy >= kRequiredAccuracy) return EXIT_SUCCESS;
  std::cerr << "the accuracy is below " << kRequiredAccuracy << '\n';
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
