#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/data/dataset.h"
#include "tools/print_result.h"
#include "tools/train/settings.h"

/// The data of `lockstep train`: files of several kinds as one dataset of examples.
namespace lockstep::tools {

/// What is learnt of a target: a class, numbers, or the class of each place of a sequence.
enum class Task { Classes, Numbers, Sequence };

/// An input and its target.
using Example = std::tuple<at::Tensor, at::Tensor>;
using ExampleDataset = data::Dataset<Example>;

/// How examples are read. Evaluation reads its data in the form of the training data.
struct DataForm {
  /// "csv", "npz", "records", "images" or "text".
  std::string kind = {};
  /// The columns, arrays or features of the input; empty for images and text.
  std::vector<std::string> features = {};
  std::string target = {};
  Task task = Task::Classes;
  int64_t num_classes = 0;
  /// Where classes have names: those of a CSV file with texts, and of folders.
  std::vector<std::string> class_names = {};
  /// The number of values of a target of numbers.
  int64_t num_outputs = 1;
  /// The shape of an input as the model gets it; images are [channels, height, width].
  std::vector<int64_t> input_shape = {};
  /// Whether inputs are decoded images, which are divided by 255 by default.
  bool is_image = false;

  /// The size of the last dimension of the model's outputs.
  int64_t outputs() const { return task == Task::Numbers ? num_outputs : num_classes; }
  Json to_json() const;
  static DataForm from_json(const Json& json);
};

/// Some of the examples of files.
struct ExamplePart {
  int64_t count = 0;
  /// Makes batches. `shuffle` > 0: in random order, another one in every epoch; 0: in the order of the files. Each call
  /// makes a dataset with epochs of its own.
  std::function<ExampleDataset(int64_t batch_size, int64_t shuffle)> batches;
};

/// Files that were opened: their form, and a dataset for each choice of examples.
struct OpenedData {
  DataForm form;
  int64_t count = 0;
  /// Whether `shuffle` is the size of a buffer: records are read in their order. All other examples are shuffled as a
  /// whole, before they are decoded.
  bool is_stream = false;
  /// The names of examples that have some: the files of images.
  std::vector<std::string> names = {};
  /// Returns the examples i with keep[i] == kept, in the order of the files; null: all.
  std::function<ExamplePart(const std::shared_ptr<const std::vector<bool>>& keep, bool kept)> part = {};
};

struct OpenOptions {
  /// Set for evaluation: the form of the training data. Otherwise the settings and the data decide.
  std::optional<DataForm> form = std::nullopt;
  /// False for predictions: a file without target has targets of 0.
  bool needs_target = true;
};

/// Opens files. DataError and ValueError that name the file, what was found and what is allowed.
OpenedData open_data(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options = {});

/// Internal: one function for each kind.
OpenedData open_csv(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options);
OpenedData open_npz(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options);
OpenedData open_records(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options);
OpenedData open_images(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options);
OpenedData open_text(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options);

/// Internal: examples that are made by their numbers. `read` returns the batch of the examples with these numbers, also
/// of none; it is called by so many threads.
struct IndexedExamples {
  int64_t count = 0;
  std::function<Example(const at::Tensor& numbers)> read = {};
  at::ScalarType input_dtype = at::kFloat;
  at::ScalarType target_dtype = at::kLong;
  int num_threads = 1;
};
OpenedData indexed_data(DataForm form, IndexedExamples examples);
/// Internal: inputs and targets in memory.
OpenedData tensors_as_data(DataForm form, at::Tensor inputs, at::Tensor targets);
/// Internal: the name of the target: the one that is set, else the usual one among those of the data;
/// empty for predictions with a known form, and where they have none.
std::string choose_target(const std::vector<std::string>& names, const Settings& settings, const OpenOptions& options,
                          const std::string& place);
/// Internal: what the settings say about the task: by the loss; nothing where the target decides.
std::optional<Task> task_of_settings(const Settings& settings);
/// Internal: sets the number of classes: integers from `smallest` to `largest` were found. ValueError where they cannot
/// be classes.
void set_classes(DataForm& form, const Settings& settings, int64_t smallest, int64_t largest, const std::string& place);
/// Internal: the shape of the model's input for rows of this shape. ValueError where it has another number of values.
std::vector<int64_t> shape_of_rows(at::IntArrayRef row, const Settings& settings, const OpenOptions& options,
                                   const std::string& place);
/// Internal: DataError for targets that the loss cannot learn, or that are no classes of the form.
void check_numbers(const at::Tensor& targets, const Settings& settings, const std::string& place);
void check_known_classes(const at::Tensor& classes, const DataForm& form);
/// Internal: the targets of data without any.
at::Tensor no_targets(const DataForm& form, int64_t rows);
/// Internal: the image as [channels, height, width], scaled to the shape where the settings say so.
at::Tensor fitted_image(const at::Tensor& image, const std::vector<int64_t>& shape, bool may_scale);
/// Internal: the shape of images whose first one has this size.
std::vector<int64_t> image_shape(const Settings& settings, int64_t channels, int64_t height, int64_t width);

}  // namespace lockstep::tools
