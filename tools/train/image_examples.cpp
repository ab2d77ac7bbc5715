#include <algorithm>
#include <filesystem>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/device/thread_share.h"
#include "tools/command/nearest.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

constexpr int kMostImageThreads = 8;

struct LabelledFiles {
  std::vector<std::string> files;
  /// Empty where targets are not read.
  std::vector<int64_t> labels;
  std::vector<std::string> classes;
};

/// The images of a folder with a folder for each class. ValueError for classes that the training data do not have.
LabelledFiles labelled_files(const std::string& folder, const DataForm& form) {
  bool has_folders = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name.starts_with('.')) continue;
    has_folders = true;
    const auto& known = form.class_names;
    LOCKSTEP_CHECK_VALUE(known.empty() || std::find(known.begin(), known.end(), name) != known.end(),
                         "[train] a class that the training data do not have: folder=\"", entry.path().string(),
                         "\", classes=", enumeration(known), "; move the folder away");
  }
  LOCKSTEP_CHECK_VALUE(has_folders, "[train] images must be in a folder for each class: folder=\"", folder,
                       "\"; move them into folders with the names of the classes");
  const data::ImageFolder found = data::image_folder(folder, {.classes = form.class_names, .shuffle = false});
  return {found.files, found.labels, found.classes};
}

/// The size of the first image, with colours where one of them has colours. Reads the headers.
data::ImageSize common_size(const std::vector<std::string>& files) {
  data::ImageSize common;
  for (const std::string& file : files) {
    const auto buffer = data::Buffer::map_file(file, "train");
    data::ImageSize size;
    try {
      size = data::image_size(data::Bytes(buffer, {buffer->data(), buffer->size()}));
    } catch (const DataError& error) {
      LOCKSTEP_THROW(DataError, "[train] the image cannot be read: file=\"", file,
                     "\"; remove it: ", error.what_without_backtrace());
    }
    if (common.height == 0) common = size;
    common.channels = std::max(common.channels >= 3 ? 3 : 1, size.channels >= 3 ? 3 : 1);
  }
  return common;
}

Example read_images(const LabelledFiles& from, const at::Tensor& numbers, const std::vector<int64_t>& shape,
                    bool may_scale) {
  std::vector<int64_t> sizes = shape;
  sizes.insert(sizes.begin(), numbers.size(0));
  const at::Tensor images = torch::empty(sizes, at::kByte);
  const at::Tensor labels = torch::zeros({numbers.size(0)}, at::kLong);
  for (int64_t row = 0; row < numbers.size(0); ++row) {
    const auto number = static_cast<size_t>(numbers[row].item<int64_t>());
    images[row].copy_(fitted_image(data::read_image(from.files[number], {.channels = shape[0]}), shape, may_scale));
    if (!from.labels.empty()) labels[row].fill_(from.labels[number]);
  }
  return {images, labels};
}

}  // namespace

OpenedData open_images(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  LOCKSTEP_CHECK_VALUE(paths.size() == 1, "[train] data are one folder of images: folders=", paths.size());
  DataForm form = options.form.value_or(DataForm{.kind = "images"});
  LOCKSTEP_CHECK_VALUE(form.kind == "images", "[train] the training data were no folder of images: data=\"", paths[0],
                       "\", training=", form.kind);
  const LabelledFiles found =
      options.needs_target ? labelled_files(paths[0], form) : LabelledFiles{data::image_files(paths[0]), {}, {}};
  LOCKSTEP_CHECK_DATA(!found.files.empty(), "[train] the folder has no images: folder=\"", paths[0],
                      "\"; add .jpg or .png files");
  if (!options.form) {
    const data::ImageSize size = common_size(found.files);
    form.is_image = true;
    form.class_names = found.classes;
    form.num_classes = std::max<int64_t>(2, static_cast<int64_t>(found.classes.size()));
    form.input_shape = image_shape(settings, size.channels, size.height, size.width);
    LOCKSTEP_CHECK_VALUE(task_of_settings(settings).value_or(Task::Classes) == Task::Classes,
                         "[train] the targets of a folder of images are classes: loss=", settings.text("loss"),
                         "; use cross_entropy");
  }
  const bool may_scale = settings.has("image-size") || options.form.has_value();
  const auto count = static_cast<int64_t>(found.files.size());
  IndexedExamples examples{
      .count = count, .input_dtype = at::kByte, .num_threads = std::min(num_hardware_threads(), kMostImageThreads)};
  examples.read = [shape = form.input_shape, may_scale, files = std::make_shared<LabelledFiles>(found)](
                      const at::Tensor& numbers) { return read_images(*files, numbers, shape, may_scale); };
  OpenedData opened = indexed_data(form, std::move(examples));
  for (const std::string& file : found.files) {
    opened.names.push_back(std::filesystem::path(file).lexically_relative(paths[0]).string());
  }
  return opened;
}

OpenedData open_text(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  constexpr int64_t kBytes = 256;
  DataForm form = options.form.value_or(DataForm{.kind = "text", .task = Task::Sequence, .num_classes = kBytes});
  LOCKSTEP_CHECK_VALUE(form.kind == "text", "[train] the training data were no text: file=\"", paths[0],
                       "\", training=", form.kind);
  LOCKSTEP_CHECK_VALUE(task_of_settings(settings).value_or(Task::Classes) == Task::Classes,
                       "[train] characters are classes: loss=", settings.text("loss"), "; use cross_entropy");
  if (!options.form) form.input_shape = {settings.integer("length")};
  const int64_t length = form.input_shape.at(0);
  std::vector<at::Tensor> seen;
  std::vector<at::Tensor> next;
  for (const std::string& path : paths) {
    const auto buffer = data::Buffer::map_file(path, "train");
    // A copy: the mapping ends with this function.
    const at::Tensor text =
        torch::from_blob(const_cast<char*>(buffer->data()), {static_cast<int64_t>(buffer->size())}, torch::kByte)
            .clone();
    const int64_t count = (text.size(0) - 1) / length;
    LOCKSTEP_CHECK_DATA(count > 0, "[train] the text is shorter than a sequence: file=\"", path,
                        "\", characters=", text.size(0), ", length=", length);
    seen.push_back(text.slice(0, 0, count * length).view({count, length}));
    next.push_back(text.slice(0, 1, count * length + 1).view({count, length}));
  }
  // Bytes until a batch is made: eight times as many would have to be held.
  IndexedExamples examples{.input_dtype = torch::kLong};
  examples.read = [all = torch::cat(seen), after = torch::cat(next)](const at::Tensor& numbers) {
    return Example{all.index_select(0, numbers).to(torch::kLong), after.index_select(0, numbers).to(torch::kLong)};
  };
  for (const at::Tensor& part : seen) examples.count += part.size(0);
  return indexed_data(form, std::move(examples));
}

}  // namespace lockstep::tools
