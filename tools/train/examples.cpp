#include "tools/train/examples.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bytes.h"
#include "tools/command/nearest.h"
#include "tools/data/file_kind.h"

namespace lockstep::tools {
namespace {

constexpr int64_t kMostClasses = 1000;

std::string task_name(Task task) {
  return task == Task::Classes ? "classes" : task == Task::Numbers ? "numbers" : "sequence";
}

std::string lower_extension(const std::string& path) {
  std::string text = std::filesystem::path(path).extension().string();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// ValueError for files that look like data of a kind but cannot be read as such.
void check_readable(const std::string& path, FileKind kind) {
  using namespace std::string_view_literals;
  const auto file = data::Buffer::map_file(path, "train");
  const std::string_view head(file->data(), std::min<size_t>(file->size(), 2));
  const bool is_utf16 = head == "\xff\xfe"sv || head == "\xfe\xff"sv;
  const bool is_text = kind == FileKind::Csv || kind == FileKind::Text;
  LOCKSTEP_CHECK_VALUE(!is_utf16 || !is_text, "[train] texts and tables must be UTF-8: file=\"", path,
                       "\", found=UTF-16; save the file as UTF-8, or convert it with iconv -f UTF-16 -t UTF-8");
  if (kind != FileKind::Text) return;
  const std::string extension = lower_extension(path);
  for (const char* table : {".tsv", ".tab", ".psv"}) {
    LOCKSTEP_CHECK_VALUE(extension != table, "[train] a table must be a .csv file with commas and a header: file=\"",
                         path, "\"; convert it");
  }
  LOCKSTEP_CHECK_VALUE(head != "\x1f\x8b"sv, "[train] text must not be compressed: file=\"", path,
                       "\"; decompress it with gunzip");
}

std::string kind_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return "folder";
  return kind_name(file_kind(path));
}

/// ValueError where the files are not all of the kind of the first one.
void check_one_kind(const std::vector<std::string>& paths) {
  const std::string kind = kind_of(paths[0]);
  for (const std::string& path : paths) {
    const std::string other = kind_of(path);
    LOCKSTEP_CHECK_VALUE(other == kind, "[train] all files of the data must be of one kind: file=\"", path,
                         "\", kind=", other, ", kind of \"", paths[0], "\"=", kind, "; leave one of them out");
  }
}

}  // namespace

Json DataForm::to_json() const {
  return {
      {"kind", kind},           {"features", features},       {"target", target},       {"task", task_name(task)},
      {"classes", num_classes}, {"class_names", class_names}, {"outputs", num_outputs}, {"input_shape", input_shape},
      {"is_image", is_image}};
}

DataForm DataForm::from_json(const Json& json) {
  DataForm form;
  form.kind = json.at("kind");
  form.features = json.at("features").get<std::vector<std::string>>();
  form.target = json.at("target");
  const std::string task = json.at("task");
  form.task = task == "classes" ? Task::Classes : task == "numbers" ? Task::Numbers : Task::Sequence;
  form.num_classes = json.at("classes");
  form.class_names = json.at("class_names").get<std::vector<std::string>>();
  form.num_outputs = json.at("outputs");
  form.input_shape = json.at("input_shape").get<std::vector<int64_t>>();
  form.is_image = json.at("is_image");
  return form;
}

std::optional<Task> task_of_settings(const Settings& settings) {
  if (!settings.has("loss")) return std::nullopt;
  return settings.text("loss") == "cross_entropy" ? Task::Classes : Task::Numbers;
}

void set_classes(DataForm& form, const Settings& settings, int64_t smallest, int64_t largest,
                 const std::string& place) {
  LOCKSTEP_CHECK_VALUE(smallest >= 0, "[train] classes are integers from 0 on: ", place, ", smallest=", smallest,
                       "; give --loss mse to learn numbers");
  if (const auto classes = settings.find_integer("classes")) {
    LOCKSTEP_CHECK_VALUE(largest < *classes, "[train] a class must be below the number of classes: ", place,
                         ", class=", largest, ", classes=", *classes);
    form.num_classes = *classes;
    return;
  }
  LOCKSTEP_CHECK_VALUE(largest < kMostClasses, "[train] integers up to ", kMostClasses - 1,
                       " are taken for classes: ", place, ", largest=", largest,
                       "; give --loss mse to learn numbers, or --classes ", largest + 1);
  form.num_classes = std::max<int64_t>(2, largest + 1);
}

std::string choose_target(const std::vector<std::string>& names, const Settings& settings, const OpenOptions& options,
                          const std::string& place) {
  const auto is_there = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  // The targets of data for predictions are not read, whatever they are.
  if (options.form && !options.needs_target) return "";
  std::string target = options.form ? options.form->target : settings.find_text("target").value_or("");
  if (!target.empty()) {
    if (is_there(target)) return target;
    LOCKSTEP_CHECK_VALUE(!options.needs_target, "[train] the data have no such target: ", place, ", target=", target,
                         ", names=", enumeration(names), did_you_mean(target, names));
    return "";
  }
  for (const char* usual : {"label", "labels", "target", "targets", "class", "y", "y_train", "image/class/label"}) {
    if (is_there(usual)) return usual;
  }
  if (!options.needs_target) return "";
  LOCKSTEP_THROW(c10::ValueError, "[train] the target is not known: ", place, ", names=", enumeration(names),
                 "; give one of them as --target");
}

at::Tensor fitted_image(const at::Tensor& image, const std::vector<int64_t>& shape, bool may_scale) {
  const at::Tensor planes = image.permute({2, 0, 1});
  if (planes.sizes() == at::IntArrayRef(shape)) return planes.contiguous();
  LOCKSTEP_CHECK_VALUE(may_scale, "[train] all images must have one size: size=", planes.size(1), "x", planes.size(2),
                       ", size of the first=", shape[1], "x", shape[2], "; scale them with --image-size ", shape[1],
                       "x", shape[2]);
  const at::Tensor scaled =
      torch::upsample_bilinear2d(planes.unsqueeze(0).to(torch::kFloat), {shape[1], shape[2]}, false)[0];
  return scaled.round().clamp(0, 255).to(torch::kByte);
}

std::vector<int64_t> image_shape(const Settings& settings, int64_t channels, int64_t height, int64_t width) {
  channels = channels < 3 ? 1 : 3;
  if (const auto size = settings.find_text("image-size")) {
    const auto sizes = parse_sizes(*size, "--image-size");
    LOCKSTEP_CHECK_VALUE(sizes.size() == 2, "[train] --image-size is HEIGHTxWIDTH: value=", *size);
    return {channels, sizes[0], sizes[1]};
  }
  return {channels, height, width};
}

OpenedData open_data(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  LOCKSTEP_CHECK_VALUE(!paths.empty(), "[train] --data is missing: ", setting_named("data").description);
  for (const std::string& path : paths) {
    LOCKSTEP_CHECK_DATA(std::filesystem::exists(path), "[train] there is no such file: data=\"", path, "\"");
  }
  check_one_kind(paths);
  OpenedData opened;
  if (std::filesystem::is_directory(paths[0])) {
    opened = open_images(paths, settings, options);
  } else {
    const FileKind kind = file_kind(paths[0]);
    for (const std::string& path : paths) check_readable(path, kind);
    switch (kind) {
      case FileKind::Csv:
        opened = open_csv(paths, settings, options);
        break;
      case FileKind::Npz:
        opened = open_npz(paths, settings, options);
        break;
      case FileKind::Records:
        opened = open_records(paths, settings, options);
        break;
      case FileKind::Text:
        opened = open_text(paths, settings, options);
        break;
      default:
        LOCKSTEP_THROW(c10::ValueError,
                       "[train] data are record files, .npz, .csv, text files or folders of images: file=\"", paths[0],
                       "\", kind=", kind_name(kind));
    }
  }
  LOCKSTEP_CHECK_DATA(opened.count > 0, "[train] the data have no examples: data=\"", paths[0], "\"");
  if (options.form) {
    LOCKSTEP_CHECK_VALUE(opened.form.input_shape == options.form->input_shape,
                         "[train] examples must have the shape of the training data: data=\"", paths[0],
                         "\", shape=", at::IntArrayRef(opened.form.input_shape),
                         ", training=", at::IntArrayRef(options.form->input_shape));
  }
  return opened;
}

}  // namespace lockstep::tools
