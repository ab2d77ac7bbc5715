#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"

/// Reads tables of text (RFC 4180): fields between delimiters, in double quotes where they hold delimiters, line ends
/// or quotes, which are doubled.
///
///     data::CsvReader reader("table.csv", {.header = true});
///     for (std::vector<std::string> fields; reader.next(fields);) {
///       const auto id = reader.number<int32_t>(fields, 0);
///       const auto weight = reader.number<float>(fields, 2, -1.0F);  // where the field is empty
///     }
namespace lockstep::data {

namespace detail {
class ByteStream;
class StoredFile;
}  // namespace detail

struct CsvOptions {
  char delimiter = ',';
  /// Whether the first record contains the column names.
  bool header = false;
  /// A field with this text counts as empty.
  std::string na_value = {};
  /// The columns to return, from 0 on, in this order; empty: all.
  std::vector<int64_t> select_columns = {};
  /// Auto detects gzip; zlib must be set explicitly.
  Compression compression = Compression::Auto;
  /// How an opened file is read.
  FileAccess access = FileAccess::Auto;
};

/// The records of one file in order. One thread at a time may use it.
///
/// All records have as many fields as the first one. Errors are DataError that names the file, the line where the
/// record begins (from 1 on), and the column (from 0 on). Each is thrown once and counts as one record: the next call
/// reads the record behind it, after an error inside a record from the next line on. Damaged compressed data end the
/// file.
class LOCKSTEP_API CsvReader {
 public:
  explicit CsvReader(std::string path, CsvOptions options = {});
  /// Reads the contents of a file from memory; messages name it `name`.
  CsvReader(Bytes contents, std::string name, CsvOptions options = {});
  ~CsvReader();
  CsvReader(CsvReader&&) noexcept;
  CsvReader& operator=(CsvReader&&) noexcept;

  /// Reads the selected fields of the next record; a field that is `na_value` is empty. Returns false at the end.
  bool next(std::vector<std::string>& fields);
  /// Skips up to `count` records and returns how many. Errors are not thrown and count as one record, as in `next`.
  int64_t skip(int64_t count);

  /// Returns field `index` of the last record as a number: int32_t, int64_t, float or double. An empty field is
  /// `if_empty`; without that, and for a text that is no such number, it throws DataError that names file, line,
  /// column, text and type.
  template <class T>
  T number(const std::vector<std::string>& fields, size_t index, std::optional<T> if_empty = std::nullopt) const;

  /// The names of the selected columns, where the file has a header.
  const std::vector<std::string>& names() const { return names_; }
  /// How many records were read or skipped, without the header.
  int64_t records_read() const { return records_read_; }
  /// The line where the last record begins, from 1 on.
  int64_t line() const { return line_; }

 private:
  CsvReader(detail::StoredFile file, std::string name, CsvOptions options);
  bool read_record(std::vector<std::string>& fields);
  void read_fields(std::vector<std::string>& fields);
  void leave_line();
  bool read_field(std::string& field);
  void read_plain(std::string& field);
  void read_quoted(std::string& field);
  std::string_view ahead();
  void take_line_end();
  void select(std::vector<std::string>& fields);
  [[noreturn]] void refuse(std::string_view rule, std::string_view text) const;
  [[noreturn]] void end_with(std::string_view problem);

  std::string path_;
  CsvOptions options_;
  std::unique_ptr<detail::ByteStream> stream_;
  std::vector<std::string> names_;
  std::vector<std::string> selected_;
  size_t num_columns_ = 0;  // 0 before the first record
  size_t column_ = 0;       // of the field that is read
  int64_t records_read_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  bool ended_ = false;  // at damage
};

}  // namespace lockstep::data
