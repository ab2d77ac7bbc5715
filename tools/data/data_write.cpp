#include "tools/data/data_write.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/records/example_builder.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/formats/text/csv.h"
#include "lockstep/data/formats/text/lines.h"
#include "tools/data/file_kind.h"

namespace lockstep::tools {
namespace {

using Sink = std::function<void(std::string_view record)>;

/// Distributes records over files, round-robin.
class Shards {
 public:
  explicit Shards(const WriteOptions& options) : task_("writing " + options.output, {.unit = "records"}) {
    const data::RecordWriterOptions writer_options{.compression = data::parse_compression(options.compression)};
    for (int i = 0; i < options.num_shards; ++i) {
      std::ostringstream path;
      path << options.output;
      if (options.num_shards > 1) {
        path << '-' << std::setfill('0') << std::setw(5) << i << "-of-" << std::setw(5) << options.num_shards;
      }
      paths_.push_back(path.str());
      writers_.push_back(std::make_unique<data::RecordWriter>(path.str(), writer_options));
    }
  }

  void write(std::string_view record) {
    writers_[next_ % writers_.size()]->write(record);
    task_.set(static_cast<int64_t>(++next_));
  }

  std::vector<WrittenFile> close() {
    std::vector<WrittenFile> files;
    for (size_t i = 0; i < writers_.size(); ++i) {
      writers_[i]->close();
      files.push_back({paths_[i], writers_[i]->records_written(), std::filesystem::file_size(paths_[i])});
    }
    return files;
  }

 private:
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<data::RecordWriter>> writers_;
  size_t next_ = 0;
  progress::Task task_;
};

template <class Reader>
void copy_all(Reader reader, const Sink& sink) {
  data::Bytes record;
  while (reader.next(record)) sink(record);
}

/// A field is an integer if it parses as one, else a float if it does, else a text.
void set_field(data::ExampleBuilder& example, const std::string& name, const std::string& text) {
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto read = std::from_chars(text.data(), end, integer); read.ec == std::errc() && read.ptr == end) {
    example.set(name, integer);
    return;
  }
  float number = 0;
  if (const auto read = std::from_chars(text.data(), end, number); read.ec == std::errc() && read.ptr == end) {
    example.set(name, number);
    return;
  }
  example.set(name, std::string_view(text));
}

void write_table(const std::string& file, bool header, const Sink& sink) {
  data::CsvReader reader(file, {.header = header});
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    data::ExampleBuilder example;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].empty()) continue;
      set_field(example, header ? reader.names()[i] : c10::str("column_", i), fields[i]);
    }
    sink(example.serialize());
  }
}

/// A row of numbers becomes a list of floats or int64; a row of bytes becomes one bytes value, which `Raw` reads.
void set_row(data::ExampleBuilder& example, const std::string& name, const at::Tensor& row) {
  if (row.scalar_type() == at::kByte && row.dim() > 0) {
    const at::Tensor bytes = row.contiguous();
    example.set(name, std::string_view(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()));
  } else if (row.is_floating_point()) {
    const at::Tensor floats = row.to(at::kFloat).contiguous();
    example.set(name, std::span<const float>(floats.data_ptr<float>(), floats.numel()));
  } else {
    const at::Tensor integers = row.to(at::kLong).contiguous();
    example.set(name, std::span<const int64_t>(integers.data_ptr<int64_t>(), integers.numel()));
  }
}

void write_arrays(const std::string& file, const std::map<std::string, at::Tensor>& arrays, const Sink& sink) {
  int64_t rows = -1;
  for (const auto& [name, array] : arrays) {
    LOCKSTEP_CHECK_DATA(array.dim() > 0 && !array.is_complex(),
                        "[data write] an array must have rows of real numbers: file=\"", file, "\", array=", name);
    LOCKSTEP_CHECK_DATA(rows < 0 || rows == array.size(0),
                        "[data write] all arrays of a file must have the same number of rows: file=\"", file,
                        "\", array=", name, ", rows=", array.size(0), ", rows of the others=", rows);
    rows = array.size(0);
  }
  for (int64_t i = 0; i < rows; ++i) {
    data::ExampleBuilder example;
    for (const auto& [name, array] : arrays) set_row(example, name, array[i]);
    sink(example.serialize());
  }
}

void write_samples(const std::string& file, const Sink& sink) {
  data::TarSampleReader reader(file);
  data::TarSample sample;
  while (reader.next(sample)) {
    data::ExampleBuilder example;
    example.set("__key__", std::string_view(sample.key));
    for (const auto& [extension, contents] : sample.files) example.set(extension, contents.view());
    sink(example.serialize());
  }
}

void write_file(const std::string& file, const WriteOptions& options, const Sink& sink) {
  switch (file_kind(file)) {
    case FileKind::Records:
      return copy_all(data::RecordReader(file), sink);
    case FileKind::Text:
      return copy_all(data::LineReader(file), sink);
    case FileKind::Csv:
      return write_table(file, options.csv_header, sink);
    case FileKind::Npy:
      return write_arrays(file, {{"data", data::load_npy(file)}}, sink);
    case FileKind::Npz:
      return write_arrays(file, data::load_npz(file), sink);
    case FileKind::Tar:
      return write_samples(file, sink);
    case FileKind::Jpeg:
    case FileKind::Png: {
      const auto buffer = data::Buffer::map_file(file, "data write");
      data::ExampleBuilder example;
      example.set("image", std::string_view(buffer->data(), buffer->size())).set("file", std::string_view(file));
      return sink(example.serialize());
    }
    case FileKind::Unknown:
      break;
  }
  LOCKSTEP_THROW(DataError, "[data write] the format is unknown: file=\"", file, "\"");
}

}  // namespace

std::vector<WrittenFile> write_records(const WriteOptions& options) {
  for (const std::string& input : options.inputs) {
    LOCKSTEP_CHECK_VALUE(input != options.output, "[data write] a file cannot be read and written at once: file=\"",
                         input, "\"");
  }
  Shards shards(options);
  for (const std::string& input : options.inputs) {
    write_file(input, options, [&](std::string_view record) { shards.write(record); });
  }
  return shards.close();
}

}  // namespace lockstep::tools
