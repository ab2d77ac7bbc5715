#include "lockstep/data/image_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/sources/image_spec.h"
#include "lockstep/data/sources/reader.h"

namespace lockstep::data {
namespace detail {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kReadable{".jpg", ".jpeg", ".jpe", ".jfif", ".png"};
constexpr std::array<std::string_view, 13> kOtherImages{".webp", ".bmp",  ".gif",  ".tif",  ".tiff", ".ppm", ".pgm",
                                                        ".pbm",  ".heic", ".heif", ".avif", ".jp2",  ".jxl"};

std::string lower_extension(const fs::path& path) {
  std::string text = path.extension().string();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

template <class Extensions>
bool is_one_of(const std::string& extension, const Extensions& extensions) {
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

std::vector<std::string> class_folders(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  LOCKSTEP_CHECK_VALUE(fs::is_directory(folder, error), "[image_folder] the folder must exist: folder=\"", folder,
                       "\"");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error) && !is_hidden(entry.path())) names.push_back(entry.path().filename().string());
  }
  LOCKSTEP_CHECK_VALUE(!error, "[image_folder] the folder cannot be read: folder=\"", folder, "\" (", error.message(),
                       ")");
  LOCKSTEP_CHECK_VALUE(!names.empty(), "[image_folder] the folder must have a folder for each class: folder=\"", folder,
                       "\"; read images without classes with images(list_files(...))");
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns the classes in their order. Every folder must be one of them.
std::vector<std::string> classes_of(const std::string& folder, const std::vector<std::string>& folders,
                                    const std::vector<std::string>& given) {
  if (given.empty()) return folders;
  for (size_t i = 0; i < given.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(std::find(given.begin() + static_cast<int64_t>(i) + 1, given.end(), given[i]) == given.end(),
                         "[image_folder] a class is listed once: class=\"", given[i], "\"");
  }
  for (const std::string& name : folders) {
    LOCKSTEP_CHECK_VALUE(std::find(given.begin(), given.end(), name) != given.end(),
                         "[image_folder] every folder must be one of the given classes: folder=\"", folder,
                         "\", class=\"", name, "\", classes=", given.size(), "; add it to ImageFolderOptions::classes");
  }
  return given;
}

std::vector<std::string> images_in(const fs::path& folder, progress::Task& task) {
  std::error_code error;
  std::vector<std::string> files;
  auto each = fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    const fs::path& path = each->path();
    std::error_code ignored;
    if (is_hidden(path)) {
      each.disable_recursion_pending();
      continue;
    }
    if (each->is_directory(ignored)) continue;
    const std::string extension = lower_extension(path);
    LOCKSTEP_CHECK_VALUE(!is_one_of(extension, kOtherImages),
                         "[image_folder] images must be JPEG or PNG files: file=\"", path.string(),
                         "\"; convert it, or move it out of the folder");
    if (!is_one_of(extension, kReadable)) continue;
    files.push_back(path.string());
    task.add(1);
  }
  LOCKSTEP_CHECK_VALUE(!error, "[image_folder] the folder cannot be read: folder=\"", folder.string(), "\" (",
                       error.message(), ")");
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> images_of_class(const fs::path& folder, progress::Task& task) {
  std::vector<std::string> files = images_in(folder, task);
  LOCKSTEP_CHECK_VALUE(!files.empty(), "[image_folder] every class must have an image: folder=\"", folder.string(),
                       "\"; remove the folder, or add .jpg or .png files");
  return files;
}

/// The one element of a file: its bytes, its label and its path.
class LabelledFile final : public NodeIterator {
 public:
  LabelledFile(std::string path, int64_t label) : path_(std::move(path)), label_(label) {}

  bool next(Element& element) override {
    if (std::exchange(is_read_, true)) return false;
    encode(std::tuple{map_or_read(path_, "image_folder"), label_, path_}, element);
    return true;
  }

  int64_t skip(int64_t count) override { return count > 0 && !std::exchange(is_read_, true) ? 1 : 0; }

 private:
  std::string path_;
  int64_t label_;
  bool is_read_ = false;
};

using LabelledBytes = std::tuple<Bytes, int64_t, std::string>;

/// Finds the label of a file by the folder that it is in.
class LabelOfPath {
 public:
  LabelOfPath(const std::string& folder, const std::vector<std::string>& classes)
      : prefix_((fs::path(folder) / "").string().size()) {
    for (size_t label = 0; label < classes.size(); ++label) labels_.emplace(classes[label], label);
  }

  int64_t operator()(const std::string& path) const {
    return labels_.at(path.substr(prefix_, path.find('/', prefix_) - prefix_));
  }

 private:
  size_t prefix_;
  std::unordered_map<std::string, int64_t> labels_;
};

Dataset<LabelledBytes> labelled_files(const ImageFolderOptions& options, const std::vector<std::string>& files,
                                      LabelOfPath label_of) {
  auto open = [label_of = std::move(label_of)](const std::string& path) -> std::unique_ptr<NodeIterator> {
    return std::make_unique<LabelledFile>(path, label_of(path));
  };
  const auto sorted = from_vector(files);
  const auto names =
      options.shuffle ? sorted.shuffle(static_cast<int64_t>(files.size()), {.seed = options.seed}) : sorted;
  return Dataset<LabelledBytes>(
      make_reader(node_of(names), FileFormat{"image_folder", std::move(open), static_spec<LabelledBytes>(), true}));
}

}  // namespace
}  // namespace detail

std::vector<std::string> image_files(const std::string& folder) {
  std::error_code error;
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(folder, error), "[image_files] the folder must exist: folder=\"",
                       folder, "\"");
  progress::Task task("listing images in " + folder, {.unit = "files"});
  return detail::images_in(folder, task);
}

ImageFolder image_folder(const std::string& folder, const ImageFolderOptions& options) {
  const std::vector<std::string> folders = detail::class_folders(folder);
  const std::vector<std::string> classes = detail::classes_of(folder, folders, options.classes);
  std::vector<std::string> files;
  std::vector<int64_t> labels;
  progress::Task task("listing images in " + folder, {.unit = "files"});
  for (size_t label = 0; label < classes.size(); ++label) {
    if (!std::binary_search(folders.begin(), folders.end(), classes[label])) continue;
    const auto of_class = detail::images_of_class(std::filesystem::path(folder) / classes[label], task);
    files.insert(files.end(), of_class.begin(), of_class.end());
    labels.insert(labels.end(), of_class.size(), static_cast<int64_t>(label));
  }
  const auto decode = [image = options.image](const Bytes& file, int64_t label, const std::string& path) {
    ImageOptions named = image;
    named.name = path;
    return std::tuple<at::Tensor, int64_t>(decode_image(file, named), label);
  };
  ElementSpec spec = detail::static_spec<std::tuple<at::Tensor, int64_t>>();
  spec.leaves->front() = detail::image_spec(options.image);
  auto dataset = detail::labelled_files(options, files, {folder, classes})
                     .map(decode, {.num_threads = options.num_threads, .spec = std::move(spec)});
  return {classes, std::move(files), std::move(labels), std::move(dataset)};
}

}  // namespace lockstep::data
