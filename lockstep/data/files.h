#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/element/named.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"
#include "lockstep/data/formats/text/csv.h"
#include "lockstep/data/formats/text/fixed_length.h"
#include "lockstep/data/sources.h"

/// Datasets from files.
///
/// ```
/// auto train = data::tfrecords(data::list_files("train-*.tfrecord"))
///                  .map(data::parse_example({{"image", data::Raw{torch::kUInt8, {28, 28}}},
///                                            {"label", data::FixedLen{torch::kLong}}}))
///                  .shuffle(10'000)
///                  .batch(256);
/// ```
///
/// All read one file after the other, in the given order; `interleave` reads several at a time. Uncompressed files are
/// mapped, and elements point into the mapping until they are copied into a batch; on network file systems, and for
/// data larger than memory, they are read block by block (FileAccess). Errors are DataError and name file, offset and
/// record. After damage they continue with the next record where that can be found, otherwise with the next file.
namespace lockstep::data {

struct ListFilesOptions {
  /// Whether the names are shuffled anew every epoch; otherwise they are sorted.
  bool shuffle = true;
  /// The seed of the random order; without one it follows `torch::manual_seed`.
  std::optional<uint64_t> seed = std::nullopt;
};

/// The names of the files that match a pattern (`*`, `?`, `[...]`). Throws ValueError where there is none.
LOCKSTEP_API Dataset<std::string> list_files(const std::string& pattern, ListFilesOptions options = {});
LOCKSTEP_API Dataset<std::string> list_files(const std::vector<std::string>& patterns, ListFilesOptions options = {});

class FileNames;

namespace detail {
/// Internal: the dataset of names.
LOCKSTEP_API NodePtr node_of(const FileNames& files);
}  // namespace detail

/// Which files to read: one name, several, or a dataset of names.
class LOCKSTEP_API FileNames {
 public:
  FileNames(const char* name) : FileNames(std::string(name)) {}         // NOLINT: wherever files are asked for
  FileNames(const std::string& name) : FileNames(std::vector{name}) {}  // NOLINT
  FileNames(const std::vector<std::string>& names) : node_(detail::node_of(from_vector(names))) {}  // NOLINT
  FileNames(const Dataset<std::string>& names) : node_(detail::node_of(names)) {}                   // NOLINT

 private:
  friend NodePtr detail::node_of(const FileNames& files);

  NodePtr node_;
};

struct ReadOptions {
  Compression compression = Compression::Auto;
  /// Whether files are mapped or read.
  FileAccess access = FileAccess::Auto;
};

/// The lines of text files, without line ends.
LOCKSTEP_API Dataset<std::string> text_lines(const FileNames& files, Compression compression = Compression::Auto);
LOCKSTEP_API Dataset<std::string> text_lines(const FileNames& files, ReadOptions options);

/// The records of TensorFlow's record files.
LOCKSTEP_API Dataset<Bytes> tfrecords(const FileNames& files, Compression compression = Compression::Auto);
LOCKSTEP_API Dataset<Bytes> tfrecords(const FileNames& files, ReadOptions options);

/// The records of files that consist of records of one length.
LOCKSTEP_API Dataset<Bytes> fixed_length_records(const FileNames& files, FixedLengthOptions options);

/// Images, one per file: JPEG or PNG, as uint8 [height, width, channels].
LOCKSTEP_API Dataset<at::Tensor> images(const FileNames& files, ImageOptions options = {});

/// The rows of a NumPy array. The file is mapped, not read.
LOCKSTEP_API Dataset<at::Tensor> npy(const std::string& file);

/// The rows of the NumPy arrays with these names; without names, of all arrays in the file.
LOCKSTEP_API Dataset<Named> npz(const std::string& file, const std::vector<std::string>& names = {});

/// The samples of tar files in the layout of WebDataset: files with one name and different extensions are one sample.
/// It has the bytes of each file under its extension, and the name under "__key__".
LOCKSTEP_API Dataset<Named> tar_samples(const FileNames& files, FileAccess access = FileAccess::Auto);

namespace detail {

/// One column of a table: its type, and the value of an empty field.
struct CsvColumn {
  /// A number type, or nothing for texts.
  std::optional<at::ScalarType> dtype;
  std::optional<Leaf> if_empty;
};
LOCKSTEP_API NodePtr make_csv(const FileNames& files, std::vector<CsvColumn> columns, ElementSpec spec,
                              CsvOptions options);

template <class T>
inline constexpr bool kIsCsvType =
    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::string>;

template <class T>
Dataset<T> csv_dataset(const FileNames& files, const T* defaults, CsvOptions options) {
  std::vector<CsvColumn> columns;
  T shape = defaults != nullptr ? *defaults : T{};
  nest::for_each_leaf(
      [&](auto& value) {
        using Value = std::remove_cvref_t<decltype(value)>;
        static_assert(kIsCsvType<Value>, "columns are int32_t, int64_t, float, double or std::string");
        CsvColumn column;
        if constexpr (std::is_arithmetic_v<Value>) column.dtype = dtype_of_number<Value>();
        if (defaults != nullptr) column.if_empty = Codec<Value>::to(value);
        columns.push_back(std::move(column));
      },
      shape);
  return Dataset<T>(make_csv(files, std::move(columns), static_spec<T>(), std::move(options)));
}

}  // namespace detail

/// The records of tables. T is a tuple or a plain struct with a field for each column: int32_t, int64_t, float, double
/// or std::string. An empty field is an empty text, and an error for a number.
///
/// ```
/// auto points = data::csv<std::tuple<float, float, std::string>>("points.csv", {.header = true});
/// ```
template <class T>
Dataset<T> csv(const FileNames& files, CsvOptions options = {}) {
  return detail::csv_dataset<T>(files, nullptr, std::move(options));
}

/// The records of tables, with a default value of each column for empty fields.
template <class T>
Dataset<T> csv(const FileNames& files, const T& defaults, CsvOptions options = {}) {
  return detail::csv_dataset<T>(files, &defaults, std::move(options));
}

}  // namespace lockstep::data
