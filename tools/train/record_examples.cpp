#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/records/example.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/parse_example.h"
#include "lockstep/device/thread_share.h"
#include "tools/command/nearest.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

constexpr int kMostDecodingThreads = 8;

/// A feature of the first record.
struct FoundFeature {
  data::FeatureKind kind = data::FeatureKind::None;
  int64_t size = 0;
  /// The first value of bytes.
  data::Bytes bytes;
};
using FoundFeatures = std::map<std::string, FoundFeature>;

/// What a pass over all records finds.
struct RecordScan {
  int64_t count = 0;
  /// Whether an image has colours.
  bool has_colours = false;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  int64_t largest = std::numeric_limits<int64_t>::min();
};

FoundFeatures features_of(const data::Bytes& record) {
  FoundFeatures found;
  data::parse_features(record, [&](std::string_view key, const data::FeatureValues& values) {
    FoundFeature& feature = found[std::string(key)];
    feature.kind = values.kind();
    feature.size = static_cast<int64_t>(values.size());
    if (values.kind() == data::FeatureKind::Bytes && values.size() > 0) feature.bytes = values.first();
  });
  return found;
}

std::vector<std::string> names_of(const FoundFeatures& features) {
  std::vector<std::string> names;
  for (const auto& [name, feature] : features) names.push_back(name);
  return names;
}

FoundFeatures first_features(const std::string& path) {
  data::RecordReader reader(path);
  data::Bytes record;
  LOCKSTEP_CHECK_DATA(reader.next(record), "[train] the file has no records: file=\"", path, "\"");
  return features_of(record);
}

bool is_encoded_image(const data::Bytes& bytes) {
  const std::string_view head = bytes.view().substr(0, 4);
  return head.substr(0, 3) == "\xff\xd8\xff" || head == "\x89PNG";
}

/// Counts the records of all files, and finds the range of an integer target and whether images have colours; `image`
/// and `target` may be empty.
RecordScan scan_records(const std::vector<std::string>& paths, const std::string& target, const std::string& image) {
  RecordScan scan;
  for (const std::string& path : paths) {
    data::RecordReader reader(path);
    for (data::Bytes record; reader.next(record); ++scan.count) {
      if (target.empty() && image.empty()) continue;
      data::parse_features(record, [&](std::string_view key, const data::FeatureValues& values) {
        if (key == image && values.kind() == data::FeatureKind::Bytes && values.size() == 1 && !scan.has_colours) {
          const data::Bytes file = values.first();
          scan.has_colours = is_encoded_image(file) && data::image_size(file).channels >= 3;
        }
        if (key != target || values.kind() != data::FeatureKind::Int64 || values.size() != 1) return;
        int64_t value = 0;
        values.read(std::span<int64_t>(&value, 1));
        scan.smallest = std::min(scan.smallest, value);
        scan.largest = std::max(scan.largest, value);
      });
    }
  }
  return scan;
}

std::vector<std::string> input_features(const FoundFeatures& found, const std::string& target, const Settings& settings,
                                        const OpenOptions& options, const std::string& place) {
  std::vector<std::string> features = options.form ? options.form->features : settings.list("features");
  if (features.empty()) {
    for (const char* usual : {"image", "image_raw", "image/encoded"}) {
      if (features.empty() && found.contains(usual)) features.emplace_back(usual);
    }
  }
  if (features.empty()) {
    for (const auto& [name, feature] : found) {
      if (name != target && feature.kind != data::FeatureKind::Bytes) features.push_back(name);
    }
  }
  LOCKSTEP_CHECK_VALUE(!features.empty(), "[train] there is no feature of numbers and no image: ", place,
                       ", features=", enumeration(names_of(found)));
  for (const std::string& name : features) {
    LOCKSTEP_CHECK_VALUE(found.contains(name) && name != target,
                         "[train] there is no such feature beside the target: ", place, ", feature=", name,
                         ", features=", enumeration(names_of(found)));
    LOCKSTEP_CHECK_VALUE(features.size() == 1 || found.at(name).kind != data::FeatureKind::Bytes,
                         "[train] an image is the only feature: ", place, ", feature=", name);
  }
  return features;
}

/// Sets the shape of inputs, and adds how features are parsed.
void describe_inputs(const FoundFeatures& found, DataForm& form, const Settings& settings, bool is_fixed,
                     data::Features& parsed) {
  int64_t values = 0;
  for (const std::string& name : form.features) {
    const FoundFeature& feature = found.at(name);
    if (feature.kind == data::FeatureKind::Bytes && is_encoded_image(feature.bytes)) {
      form.is_image = true;
      parsed[name] = data::FixedLenBytes{};
      if (is_fixed) return;
      const data::ImageSize size = data::image_size(feature.bytes);
      form.input_shape = image_shape(settings, size.channels, size.height, size.width);
      return;
    }
    if (feature.kind == data::FeatureKind::Bytes) {
      values = static_cast<int64_t>(feature.bytes.size());
      parsed[name] = data::Raw{at::kByte, {values}};
    } else {
      values += feature.size;
      parsed[name] = data::FixedLen{feature.kind == data::FeatureKind::Float ? at::kFloat : at::kLong, {feature.size}};
    }
  }
  if (!is_fixed) form.input_shape = {values};
  if (const auto shape = settings.find_text("input-shape"); shape && !is_fixed) {
    form.input_shape = parse_sizes(*shape, "--input-shape");
  }
  const int64_t wanted =
      std::accumulate(form.input_shape.begin(), form.input_shape.end(), int64_t{1}, std::multiplies<>());
  LOCKSTEP_CHECK_VALUE(wanted == values, "[train] an example must have as many values as its shape: values=", values,
                       ", shape=", at::IntArrayRef(form.input_shape));
}

void describe_target(const FoundFeature& feature, DataForm& form, const Settings& settings, bool is_fixed,
                     const std::string& place, data::Features& parsed) {
  const bool is_integer = feature.kind == data::FeatureKind::Int64;
  LOCKSTEP_CHECK_VALUE(is_integer || feature.kind == data::FeatureKind::Float,
                       "[train] the target must be an integer or numbers: ", place);
  if (!is_fixed) {
    form.task = task_of_settings(settings).value_or(is_integer ? Task::Classes : Task::Numbers);
    form.num_outputs = feature.size;
  }
  LOCKSTEP_CHECK_VALUE(form.task == Task::Numbers || (is_integer && feature.size == 1),
                       "[train] a class is one integer: ", place, ", values=", feature.size);
  LOCKSTEP_CHECK_VALUE(form.task == Task::Classes || form.num_outputs == feature.size,
                       "[train] targets must have as many values as those of the training data: ", place,
                       ", values=", feature.size, ", training=", form.num_outputs);
  parsed[form.target] = data::FixedLen{is_integer ? at::kLong : at::kFloat, {feature.size}};
}

at::Tensor read_input(const data::Named& record, const DataForm& form, bool may_scale) {
  if (form.is_image) {
    const at::Tensor image =
        data::decode_image(record.get<data::Bytes>(form.features[0]), {.channels = form.input_shape[0]});
    return fitted_image(image, form.input_shape, may_scale);
  }
  std::vector<at::Tensor> parts;
  for (const std::string& name : form.features) {
    const at::Tensor values = record[name];
    // Float32 does not have all integers.
    parts.push_back(values.scalar_type() == at::kLong ? values.to(at::kDouble) : values);
  }
  return (parts.size() == 1 ? parts[0] : torch::cat(parts)).view(form.input_shape);
}

at::Tensor read_target(const data::Named& record, const DataForm& form, bool has_target, bool is_binary) {
  if (form.task == Task::Numbers) {
    const at::Tensor target = has_target ? record[form.target].to(at::kFloat) : torch::zeros({form.num_outputs});
    LOCKSTEP_CHECK_DATA(!is_binary || ((target == 0) | (target == 1)).all().item<bool>(),
                        "[train] binary_cross_entropy learns 0 and 1: feature=", form.target,
                        ", value=", target[0].item<float>());
    return target;
  }
  return has_target ? record[form.target][0] : torch::zeros({}, at::kLong);
}

}  // namespace

OpenedData open_records(const std::vector<std::string>& paths, const Settings& settings, const OpenOptions& options) {
  const std::string place = "file=\"" + paths[0] + "\"";
  const bool is_fixed = options.form.has_value();
  DataForm form = options.form.value_or(DataForm{.kind = "records"});
  LOCKSTEP_CHECK_VALUE(form.kind == "records", "[train] the training data were no record files: ", place,
                       ", training=", form.kind);
  const FoundFeatures found = first_features(paths[0]);
  const std::string target = choose_target(names_of(found), settings, options, place);
  data::Features parsed;
  if (!is_fixed) form.target = target;
  if (!is_fixed && target.empty()) form.task = task_of_settings(settings).value_or(Task::Classes);
  form.features = input_features(found, target, settings, options, place);
  describe_inputs(found, form, settings, is_fixed, parsed);
  if (!target.empty())
    describe_target(found.at(target), form, settings, is_fixed, place + ", feature=" + target, parsed);
  const RecordScan scan = scan_records(paths, target, form.is_image && !is_fixed ? form.features[0] : "");
  if (scan.has_colours) form.input_shape[0] = 3;
  if (form.task == Task::Classes && !target.empty()) {
    if (is_fixed) {
      LOCKSTEP_CHECK_DATA(scan.smallest >= 0 && scan.largest < form.num_classes,
                          "[train] a class that the training data do not have: ", place, ", smallest=", scan.smallest,
                          ", largest=", scan.largest, ", classes=", form.num_classes);
    } else {
      set_classes(form, settings, scan.smallest, scan.largest, place + ", feature=" + target);
    }
  }
  const bool has_target = !target.empty();
  const bool is_binary = settings.find_text("loss") == "binary_cross_entropy";
  const bool may_scale = settings.has("image-size") || is_fixed;
  const int threads = form.is_image ? std::min(num_hardware_threads(), kMostDecodingThreads) : 1;
  const auto part = [=](const std::shared_ptr<const std::vector<bool>>& keep, bool kept) -> ExamplePart {
    const int64_t count = keep ? std::count(keep->begin(), keep->end(), kept) : scan.count;
    return {count, [=](int64_t batch_size, int64_t shuffle) -> ExampleDataset {
              data::Dataset<data::Bytes> records = data::tfrecords(paths);
              if (keep) {
                records = records.enumerate()
                              .filter([keep, kept](int64_t index, const data::Bytes& /*record*/) {
                                return (*keep)[static_cast<size_t>(index)] == kept;
                              })
                              .map([](int64_t /*index*/, const data::Bytes& record) { return record; });
              }
              records = records.assert_cardinality(count);
              // The buffer has records, not images.
              if (shuffle > 0) records = records.shuffle(shuffle);
              return records.map(data::parse_example(parsed))
                  .map(
                      [form, may_scale, has_target, is_binary](const data::Named& record) {
                        return Example{read_input(record, form, may_scale),
                                       read_target(record, form, has_target, is_binary)};
                      },
                      {.num_threads = threads})
                  .batch(batch_size);
            }};
  };
  return {.form = form, .count = scan.count, .is_stream = true, .part = part};
}

}  // namespace lockstep::tools
