#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/formats/image/image.h"

namespace lockstep::data {

struct ImageFolderOptions {
  /// How images are decoded. By default all have three channels.
  ImageOptions image{.channels = 3};
  /// The classes and their order. Empty: the folders, sorted by name. Give those of the training data to the others: a
  /// class that has no folder there would change the numbers of those behind it.
  std::vector<std::string> classes{};
  /// Whether the order of files is random, another one in every epoch; otherwise they are sorted by class and path.
  bool shuffle = true;
  /// The seed of the random order; without one it follows `torch::manual_seed`.
  std::optional<uint64_t> seed = std::nullopt;
  /// How many threads decode.
  int num_threads = 1;
};

/// A folder of labelled images.
struct LOCKSTEP_API ImageFolder {
  /// The name of each class: label i is classes[i].
  std::vector<std::string> classes;
  /// The paths of all images and their labels, sorted by class and path.
  std::vector<std::string> files;
  std::vector<int64_t> labels;
  /// Image and label.
  Dataset<std::tuple<at::Tensor, int64_t>> dataset;
};

/// Reads a folder with one folder for each class, as torchvision's ImageFolder does: DIR/cat/1.jpg, DIR/dog/a/2.png.
///
/// ```
/// const auto train = data::image_folder("train", {.num_threads = 8});
/// const auto test = data::image_folder("test", {.classes = train.classes, .shuffle = false});
/// for (auto& [image, label] : train.dataset) ...                    // uint8 [height, width, 3], int64_t
/// ```
///
/// Images are the files .jpg, .jpeg, .jpe, .jfif and .png, in upper or lower case, at any depth; links are followed.
/// Other files, and those whose names begin with a dot, are left out. Workers divide the files, and errors of damaged
/// files name them.
///
/// Throws c10::ValueError where there is no such folder, it has no folders, a class has no image, a folder is not among
/// the given classes, or an image is of a format that cannot be read (.webp, .bmp, .gif, .tif, ...).
LOCKSTEP_API ImageFolder image_folder(const std::string& folder, const ImageFolderOptions& options = {});

/// The paths of all images in a folder and the folders in it, sorted: the files that `image_folder` would take, also
/// those in no folder of a class. Throws c10::ValueError where there is no such folder, or an image is of a format that
/// cannot be read.
LOCKSTEP_API std::vector<std::string> image_files(const std::string& folder);

}  // namespace lockstep::data
