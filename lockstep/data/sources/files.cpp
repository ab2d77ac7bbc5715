#include "lockstep/data/files.h"

#include <algorithm>
#include <glob.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/formats/text/lines.h"
#include "lockstep/data/sources/image_spec.h"
#include "lockstep/data/sources/reader.h"

namespace lockstep::data {
namespace detail {
namespace {

/// The elements of a file whose reader returns bytes.
template <class Reader>
class BytesIterator final : public NodeIterator {
 public:
  explicit BytesIterator(Reader reader) : reader_(std::move(reader)) {}

  bool next(Element& element) override {
    Bytes bytes;
    if (!reader_.next(bytes)) return false;
    element.clear();
    element.leaves.push_back(std::move(bytes));
    return true;
  }

  int64_t skip(int64_t count) override { return reader_.skip(count); }

 private:
  Reader reader_;
};

template <class Reader, class Options>
NodePtr make_bytes_reader(const FileNames& files, const char* name, Options options) {
  auto open = [options](const std::string& path) -> std::unique_ptr<NodeIterator> {
    return std::make_unique<BytesIterator<Reader>>(Reader(path, options));
  };
  return make_reader(node_of(files), FileFormat{name, std::move(open), static_spec<Bytes>()});
}

/// The one element of a file.
class OneElement final : public NodeIterator {
 public:
  explicit OneElement(std::function<Leaf()> read) : read_(std::move(read)) {}

  bool next(Element& element) override {
    if (!read_) return false;
    const auto read = std::exchange(read_, nullptr);
    element.clear();
    element.leaves.push_back(read());
    return true;
  }

  int64_t skip(int64_t count) override { return count > 0 && std::exchange(read_, nullptr) ? 1 : 0; }

 private:
  std::function<Leaf()> read_;
};

class SamplesIterator final : public NodeIterator {
 public:
  SamplesIterator(const std::string& path, FileAccess access) : reader_(path, access) {}

  bool next(Element& element) override {
    TarSample sample;
    if (!reader_.next(sample)) return false;
    Named named;
    for (auto& [extension, contents] : sample.files) named.set(extension, std::move(contents));
    named.set("__key__", Bytes(sample.key));
    encode(std::move(named), element);
    return true;
  }

  int64_t skip(int64_t count) override { return reader_.skip(count); }

 private:
  TarSampleReader reader_;
};

std::vector<std::string> matching_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    const int result = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    LOCKSTEP_CHECK_VALUE(result == 0, "[list_files] no file matches the pattern: pattern=\"", pattern, "\"");
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

NodePtr node_of(const FileNames& files) { return files.node_; }
}  // namespace detail

Dataset<std::string> list_files(const std::string& pattern, ListFilesOptions options) {
  return list_files(std::vector{pattern}, options);
}

Dataset<std::string> list_files(const std::vector<std::string>& patterns, ListFilesOptions options) {
  const std::vector<std::string> names = detail::matching_files(patterns);
  const auto files = from_vector(names);
  return options.shuffle ? files.shuffle(static_cast<int64_t>(names.size()), {.seed = options.seed}) : files;
}

Dataset<std::string> text_lines(const FileNames& files, Compression compression) {
  return text_lines(files, ReadOptions{.compression = compression});
}

Dataset<std::string> text_lines(const FileNames& files, ReadOptions options) {
  return Dataset<std::string>(detail::make_bytes_reader<LineReader>(
      files, "text_lines", LineReaderOptions{.compression = options.compression, .access = options.access}));
}

Dataset<Bytes> tfrecords(const FileNames& files, Compression compression) {
  return tfrecords(files, ReadOptions{.compression = compression});
}

Dataset<Bytes> tfrecords(const FileNames& files, ReadOptions options) {
  return Dataset<Bytes>(detail::make_bytes_reader<RecordReader>(
      files, "tfrecords", RecordReaderOptions{.compression = options.compression, .access = options.access}));
}

Dataset<Bytes> fixed_length_records(const FileNames& files, FixedLengthOptions options) {
  LOCKSTEP_CHECK_VALUE(
      options.record_bytes >= 1,
      "[fixed_length_records] a record must have at least one byte: record_bytes=", options.record_bytes);
  return Dataset<Bytes>(detail::make_bytes_reader<FixedLengthReader>(files, "fixed_length_records", options));
}

Dataset<at::Tensor> images(const FileNames& files, ImageOptions options) {
  auto open = [options](const std::string& path) -> std::unique_ptr<NodeIterator> {
    return std::make_unique<detail::OneElement>([path, options]() -> Leaf {
      ImageOptions named = options;
      named.name = path;
      return decode_image(detail::map_or_read(path, "images"), named);
    });
  };
  ElementSpec spec{std::vector<LeafSpec>{detail::image_spec(options)}, nullptr};
  return Dataset<at::Tensor>(detail::make_reader(detail::node_of(files),
                                                 detail::FileFormat{"images", std::move(open), std::move(spec), true}));
}

Dataset<at::Tensor> npy(const std::string& file) { return from_tensor_slices(load_npy(file)); }

Dataset<Named> npz(const std::string& file, const std::vector<std::string>& names) {
  Named arrays;
  for (auto& [name, tensor] : names.empty() ? load_npz(file) : load_npz(file, names)) arrays.set(name, tensor);
  return from_tensor_slices(std::move(arrays));
}

Dataset<Named> tar_samples(const FileNames& files, FileAccess access) {
  auto open = [access](const std::string& path) -> std::unique_ptr<NodeIterator> {
    return std::make_unique<detail::SamplesIterator>(path, access);
  };
  return Dataset<Named>(
      detail::make_reader(detail::node_of(files), detail::FileFormat{"tar_samples", std::move(open), {}}));
}

}  // namespace lockstep::data
