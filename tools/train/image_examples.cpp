#include <algorithm>
#include <filesystem>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/sources.h"
#include "lockstep/device/thread_share.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

constexpr int kMostImageThreads = 8;

}  // namespace

OpenedData open_images(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  LOCKSTEP_CHECK_VALUE(paths.size() == 1, "[train] data are one folder of images: folders=", paths.size());
  DataForm form = options.form.value_or(DataForm{.kind = "images"});
  LOCKSTEP_CHECK_VALUE(form.kind == "images", "[train] the training data were no folder of images: data=\"", paths[0],
                       "\", training=", form.kind);
  const data::ImageFolder folder = data::image_folder(paths[0], {.classes = form.class_names, .shuffle = false});
  if (!options.form) {
    const auto buffer = data::Buffer::map_file(folder.files[0], "train");
    const data::ImageSize size = data::image_size(data::Bytes(buffer, {buffer->data(), buffer->size()}));
    form.is_image = true;
    form.class_names = folder.classes;
    form.num_classes = std::max<int64_t>(2, static_cast<int64_t>(folder.classes.size()));
    form.input_shape = image_shape(settings, size.channels, size.height, size.width);
    LOCKSTEP_CHECK_VALUE(task_of_settings(settings).value_or(Task::Classes) == Task::Classes,
                         "[train] the targets of a folder of images are classes: loss=", settings.text("loss"),
                         "; use cross_entropy");
  }
  const bool may_scale = settings.has("image-size") || options.form.has_value();
  const int threads = std::min(num_hardware_threads(), kMostImageThreads);
  const auto part = [form, may_scale, threads, files = folder.files, labels = folder.labels](
                        const std::shared_ptr<const std::vector<bool>>& keep, bool kept) -> ExampleDataset {
    std::vector<std::tuple<std::string, int64_t>> chosen;
    for (size_t i = 0; i < files.size(); ++i) {
      if (!keep || (*keep)[i] == kept) chosen.emplace_back(files[i], labels[i]);
    }
    return data::from_vector(chosen).map(
        [form, may_scale](const std::string& file, int64_t label) {
          const at::Tensor image = data::read_image(file, {.channels = form.input_shape[0]});
          return Example{fitted_image(image, form.input_shape, may_scale), torch::full({}, label, at::kLong)};
        },
        {.num_threads = threads});
  };
  return {form, static_cast<int64_t>(folder.files.size()), true, part};
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
  OpenedData bytes = tensors_as_data(form, torch::cat(seen), torch::cat(next));
  const auto part = bytes.part;
  bytes.part = [part](const std::shared_ptr<const std::vector<bool>>& keep, bool kept) -> ExampleDataset {
    return part(keep, kept).map([](const at::Tensor& each, const at::Tensor& after) {
      return Example{each.to(torch::kLong), after.to(torch::kLong)};
    });
  };
  return bytes;
}

}  // namespace lockstep::tools
