#include "tools/data/data_inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/records/example.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/text/csv.h"
#include "lockstep/data/formats/text/lines.h"
#include "tools/data/file_kind.h"

namespace lockstep::tools {
namespace {

constexpr size_t kShownBytes = 48;
constexpr size_t kShownValues = 8;

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string short_bytes(std::string_view bytes) {
  if (bytes.size() <= kShownBytes) return text_of(data::Bytes(bytes));
  return text_of(data::Bytes(bytes.substr(0, kShownBytes))) + c10::str("... (", bytes.size(), " bytes)");
}

/// Collects statistics of the records of a file.
class Records {
 public:
  Records(Inspection& result, const InspectOptions& options)
      : result_(result), options_(options), task_("reading " + result.file, {.unit = "records"}) {}

  /// Whether to read more records.
  bool wants_more() {
    result_.complete = options_.max_records == 0 || result_.records < options_.max_records;
    return result_.complete;
  }
  bool shows_next() const { return result_.records < options_.first; }
  void show(std::string text) { result_.first.push_back(std::move(text)); }

  void add(uint64_t bytes) {
    result_.smallest_record = result_.records == 0 ? bytes : std::min(result_.smallest_record, bytes);
    result_.largest_record = std::max(result_.largest_record, bytes);
    result_.record_bytes += bytes;
    ++result_.records;
    task_.set(result_.records);
  }
  void add_key(const std::string& name, const std::string& type) {
    InspectedKey& key = keys_[name];
    key.name = name;
    if (key.type.find(type) == std::string::npos) key.type += (key.type.empty() ? "" : " or ") + type;
    ++key.records;
  }
  bool has_keys() const { return !keys_.empty(); }
  ~Records() {
    for (auto& key : keys_) result_.keys.push_back(std::move(key.second));
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

 private:
  Inspection& result_;
  const InspectOptions& options_;
  std::map<std::string, InspectedKey> keys_;
  progress::Task task_;
};

template <class T>
std::string shown_values(const data::FeatureValues& values) {
  std::vector<T> numbers(values.size());
  values.read(std::span<T>(numbers));
  std::ostringstream out;
  for (size_t i = 0; i < std::min(numbers.size(), kShownValues); ++i) out << (i > 0 ? ", " : "") << numbers[i];
  if (numbers.size() > kShownValues) out << ", ... (" << numbers.size() << ")";
  return out.str();
}

std::string shown_values(const data::FeatureValues& values) {
  switch (values.kind()) {
    case data::FeatureKind::Int64:
      return shown_values<int64_t>(values);
    case data::FeatureKind::Float:
      return shown_values<float>(values);
    case data::FeatureKind::Bytes:
      break;
    case data::FeatureKind::None:
      return "nothing";
  }
  std::string text;
  values.for_each([&](std::string_view value) {
    if (text.size() < 4 * kShownBytes) text += (text.empty() ? "" : ", ") + short_bytes(value);
  });
  return text;
}

/// Reads a record as a tf.Example, which may have no features. Returns false where it is no such message.
bool add_example(Records& records, const data::Bytes& record) {
  struct Feature {
    std::string type;
    std::string values;
  };
  std::map<std::string, Feature> features;
  try {
    data::parse_features(record, [&](std::string_view key, const data::FeatureValues& values) {
      Feature& feature = features[std::string(key)];
      feature.type = c10::str(values.kind(), " [", values.size(), "]");
      if (records.shows_next()) feature.values = shown_values(values);
    });
  } catch (const DataError&) {
    return false;
  }
  std::string shown;
  for (const auto& [key, feature] : features) {
    records.add_key(key, feature.type);
    shown += (shown.empty() ? "" : "; ") + key + ": " + feature.values;
  }
  if (records.shows_next()) records.show(features.empty() ? short_bytes(record) : shown);
  return true;
}

void inspect_records(const std::string& file, Inspection& result, const InspectOptions& options) {
  data::RecordReader reader(file);
  result.compression = text_of(reader.compression());
  Records records(result, options);
  data::Bytes record;
  bool all_examples = true;
  while (records.wants_more() && reader.next(record)) {
    all_examples = all_examples && add_example(records, record);
    if (!all_examples && records.shows_next()) records.show(short_bytes(record));
    records.add(record.size());
  }
  if (all_examples && records.has_keys()) result.format = "tfrecord of tf.Example";
}

void inspect_lines(const std::string& file, Inspection& result, const InspectOptions& options) {
  data::LineReader reader(file);
  Records records(result, options);
  data::Bytes line;
  while (records.wants_more() && reader.next(line)) {
    if (records.shows_next()) records.show(short_bytes(line));
    records.add(line.size());
  }
}

void inspect_csv(const std::string& file, Inspection& result, const InspectOptions& options) {
  data::CsvReader reader(file);
  Records records(result, options);
  std::vector<std::string> fields;
  while (records.wants_more() && reader.next(fields)) {
    uint64_t bytes = 0;
    std::string shown;
    for (size_t i = 0; i < fields.size(); ++i) {
      bytes += fields[i].size();
      shown += (i > 0 ? " | " : "") + fields[i];
      records.add_key(c10::str("column ", i), "text");
    }
    if (records.shows_next()) records.show(shown);
    records.add(bytes);
  }
}

void inspect_tar(const std::string& file, Inspection& result, const InspectOptions& options) {
  data::TarSampleReader reader(file);
  Records records(result, options);
  data::TarSample sample;
  while (records.wants_more() && reader.next(sample)) {
    uint64_t bytes = 0;
    std::string shown = sample.key + ":";
    for (const auto& [extension, contents] : sample.files) {
      bytes += contents.size();
      shown += c10::str(" ", extension, " (", contents.size(), " bytes)");
      records.add_key(extension, "bytes");
    }
    if (records.shows_next()) records.show(shown);
    records.add(bytes);
  }
}

void add_array(Inspection& result, const data::ArrayInfo& array) {
  result.keys.push_back({array.name, c10::str(dtype_name(array.dtype), " ", at::IntArrayRef(array.shape)), 1});
  if (!array.shape.empty()) result.records = std::max(result.records, array.shape.front());
}

void inspect_arrays(const std::string& file, Inspection& result, const InspectOptions& options) {
  const bool single = result.format == "npy";
  const std::vector<data::ArrayInfo> arrays = single ? std::vector{data::npy_info(file)} : data::npz_members(file);
  for (const data::ArrayInfo& array : arrays) add_array(result, array);
  for (const data::ArrayInfo& array : arrays) {
    const at::Tensor tensor = single ? data::load_npy(file) : data::load_npz(file, {array.name}).at(array.name);
    const at::Tensor flat = tensor.reshape({-1}).slice(0, 0, static_cast<int64_t>(kShownValues)).to(at::kDouble);
    std::ostringstream out;
    out << array.name << (single ? "" : ": ");
    for (int64_t i = 0; i < flat.numel(); ++i) out << (i > 0 ? ", " : "") << flat[i].item<double>();
    if (tensor.numel() > flat.numel()) out << ", ...";
    if (static_cast<int64_t>(result.first.size()) < options.first) result.first.push_back(out.str());
  }
}

void inspect_image(const std::string& file, Inspection& result) {
  const auto buffer = data::Buffer::map_file(file, "data inspect");
  const data::Bytes bytes(buffer, {buffer->data(), buffer->size()});
  const data::ImageSize size = data::image_size(bytes);
  result.keys.push_back({"image", c10::str("uint8 [", size.height, ", ", size.width, ", ", size.channels, "]"), 1});
  data::decode_image(bytes);
  result.records = 1;
}

void inspect_kind(FileKind kind, Inspection& result, const InspectOptions& options) {
  switch (kind) {
    case FileKind::Records:
      return inspect_records(result.file, result, options);
    case FileKind::Npy:
    case FileKind::Npz:
      return inspect_arrays(result.file, result, options);
    case FileKind::Tar:
      return inspect_tar(result.file, result, options);
    case FileKind::Jpeg:
    case FileKind::Png:
      return inspect_image(result.file, result);
    case FileKind::Csv:
      return inspect_csv(result.file, result, options);
    case FileKind::Text:
      return inspect_lines(result.file, result, options);
    case FileKind::Unknown:
      result.damage = "[data inspect] the format is unknown: file=\"" + result.file + "\"";
  }
}

}  // namespace

Inspection inspect(const std::string& file, const InspectOptions& options) {
  const FileKind kind = file_kind(file);
  Inspection result;
  result.file = file;
  result.format = kind_name(kind);
  result.file_bytes = std::filesystem::file_size(file);
  try {
    inspect_kind(kind, result, options);
  } catch (const DataError& error) {
    result.damage = error.what_without_backtrace();
    result.complete = false;
  }
  return result;
}

Json to_json(const Inspection& r) {
  Json keys = Json::array();
  for (const InspectedKey& key : r.keys)
    keys.push_back({{"name", key.name}, {"type", key.type}, {"records", key.records}});
  return {{"file", r.file},
          {"format", r.format},
          {"compression", r.compression},
          {"bytes", r.file_bytes},
          {"records", r.records},
          {"complete", r.complete},
          {"record_bytes", {{"total", r.record_bytes}, {"smallest", r.smallest_record}, {"largest", r.largest_record}}},
          {"keys", keys},
          {"first", r.first},
          {"damage", r.damage.empty() ? Json(nullptr) : Json(r.damage)}};
}

void print(const Inspection& r, std::ostream& out) {
  out << r.file << ": " << r.format << (r.compression == "none" ? "" : ", " + r.compression) << ", " << r.file_bytes
      << " bytes, " << r.records << (r.complete ? "" : " or more") << (r.records == 1 ? " record" : " records");
  if (r.record_bytes > 0) out << " of " << r.smallest_record << " to " << r.largest_record << " bytes";
  out << '\n';
  for (const InspectedKey& key : r.keys) {
    out << "  " << (key.name.empty() ? "array" : key.name) << ": " << key.type;
    if (key.records != r.records && key.records != 1) out << " (in " << key.records << " records)";
    out << '\n';
  }
  for (size_t i = 0; i < r.first.size(); ++i) out << "  [" << i << "] " << r.first[i] << '\n';
  if (!r.damage.empty()) out << "  damaged: " << r.damage << '\n';
}

}  // namespace lockstep::tools
