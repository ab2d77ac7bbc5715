#include "lockstep/data/formats/text/csv.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/formats/skip_one_by_one.h"
#include "lockstep/data/formats/stream/byte_stream.h"

namespace lockstep::data {
namespace {

template <class T>
constexpr std::string_view kTypeName = "number";
template <>
constexpr std::string_view kTypeName<int32_t> = "int32";
template <>
constexpr std::string_view kTypeName<int64_t> = "int64";
template <>
constexpr std::string_view kTypeName<float> = "float32";
template <>
constexpr std::string_view kTypeName<double> = "float64";

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

}  // namespace

CsvReader::CsvReader(std::string path, CsvOptions options)
    : CsvReader(detail::StoredFile(path, "csv", options.access), path, std::move(options)) {}

CsvReader::CsvReader(Bytes contents, std::string name, CsvOptions options)
    : CsvReader(detail::StoredFile(std::move(contents)), std::move(name), std::move(options)) {}

CsvReader::CsvReader(detail::StoredFile file, std::string name, CsvOptions options)
    : path_(std::move(name)), options_(std::move(options)) {
  const char delimiter = options_.delimiter;
  LOCKSTEP_CHECK_VALUE(delimiter != '"' && delimiter != '\n' && delimiter != '\r',
                       "[csv] must be no quote and no line end: delimiter=", static_cast<int>(delimiter));
  for (const int64_t column : options_.select_columns) {
    LOCKSTEP_CHECK_VALUE(column >= 0, "[csv] columns are counted from 0 on: select_columns has ", column);
  }
  const Compression compression = detail::resolve_by_gzip_magic(options_.compression, file.head());
  stream_ = std::make_unique<detail::ByteStream>(std::move(file), compression);
  if (options_.header && read_record(names_)) select(names_);
}

CsvReader::~CsvReader() = default;
CsvReader::CsvReader(CsvReader&&) noexcept = default;
CsvReader& CsvReader::operator=(CsvReader&&) noexcept = default;

bool CsvReader::next(std::vector<std::string>& fields) {
  if (!read_record(fields)) return false;
  ++records_read_;
  select(fields);
  if (!options_.na_value.empty()) {
    for (std::string& field : fields) {
      if (field == options_.na_value) field.clear();
    }
  }
  return true;
}

int64_t CsvReader::skip(int64_t count) {
  std::vector<std::string> fields;
  return detail::skip_one_by_one(count, [&] {
    const bool found = read_record(fields);
    if (found) ++records_read_;
    return found;
  });
}

bool CsvReader::read_record(std::vector<std::string>& fields) {
  if (ended_) return false;
  line_ = next_line_;
  column_ = 0;
  if (ahead().empty()) return false;
  try {
    read_fields(fields);
  } catch (const DataError&) {
    ++records_read_;
    leave_line();
    throw;
  }
  if (detail::any_bus_error() && !stream_->in_blocks()) {
    ended_ = true;
    stream_->contents().buffer()->check();
    ended_ = false;
  }
  if (num_columns_ == 0) num_columns_ = column_;
  LOCKSTEP_CHECK_DATA(column_ == num_columns_, "[csv] each record must have as many fields as the first: file=\"",
                      path_, "\", line=", line_, ", record=", records_read_++, ", fields=", column_,
                      ", expected=", num_columns_);
  return true;
}

void CsvReader::read_fields(std::vector<std::string>& fields) {
  for (bool more = true; more; ++column_) {
    if (fields.size() <= column_) fields.emplace_back();
    fields[column_].clear();
    more = read_field(fields[column_]);
  }
  fields.resize(column_);
}

// Consumes the rest of a line with an error, so that it is not taken for a record.
void CsvReader::leave_line() {
  for (std::string_view block = stream_->peek(); !ended_ && !block.empty(); block = stream_->peek()) {
    const size_t length = std::min(block.find_first_of("\r\n"), block.size());
    stream_->consume(length);
    if (length == block.size()) continue;
    const bool has_return = block[length] == '\r';
    stream_->consume(1);
    if (has_return && stream_->peek().starts_with('\n')) stream_->consume(1);
    ++next_line_;
    return;
  }
}

// Returns bytes that come next; damage is no end.
std::string_view CsvReader::ahead() {
  const std::string_view block = stream_->peek();
  if (block.empty() && !stream_->problem().empty()) end_with(stream_->problem());
  return block;
}

// Reads a field and what ends it; says whether another one follows in the record.
bool CsvReader::read_field(std::string& field) {
  if (ahead().starts_with('"')) {
    read_quoted(field);
  } else {
    read_plain(field);
  }
  const std::string_view block = ahead();
  if (block.empty()) return false;
  if (block.front() == options_.delimiter) {
    stream_->consume(1);
    return true;
  }
  if (block.front() != '\n' && block.front() != '\r')
    refuse("a delimiter or a line's end must follow the quotes", field);
  take_line_end();
  return false;
}

void CsvReader::read_plain(std::string& field) {
  const char delimiter = options_.delimiter;
  const auto is_end = [=](char c) { return c == delimiter || c == '\n' || c == '\r' || c == '"'; };
  for (std::string_view block = ahead(); !block.empty(); block = ahead()) {
    const auto length = std::find_if(block.begin(), block.end(), is_end) - block.begin();
    field.append(block, 0, length);
    stream_->consume(length);
    if (static_cast<size_t>(length) == block.size()) continue;
    if (block[length] == '"') refuse("a field with quotes must be in quotes", field);
    return;
  }
}

void CsvReader::read_quoted(std::string& field) {
  stream_->consume(1);
  for (std::string_view block = ahead(); !block.empty(); block = ahead()) {
    const size_t length = std::min(block.find('"'), block.size());
    const std::string_view text = block.substr(0, length);
    next_line_ += std::count(text.begin(), text.end(), '\n');
    field += text;
    const bool at_quote = length < block.size();
    stream_->consume(length + (at_quote ? 1 : 0));
    if (!at_quote) continue;
    if (!ahead().starts_with('"')) return;
    field += '"';
    stream_->consume(1);
  }
  refuse("quotes must be closed", std::string_view(field).substr(0, 40));
}

// A line feed, a carriage return, or both.
void CsvReader::take_line_end() {
  const bool has_return = ahead().front() == '\r';
  stream_->consume(1);
  if (has_return && ahead().starts_with('\n')) stream_->consume(1);
  ++next_line_;
}

void CsvReader::select(std::vector<std::string>& fields) {
  if (options_.select_columns.empty()) return;
  selected_.resize(options_.select_columns.size());
  for (size_t i = 0; i < selected_.size(); ++i) {
    const auto column = static_cast<size_t>(options_.select_columns[i]);
    LOCKSTEP_CHECK_DATA(column < fields.size(), "[csv] there is no such column: file=\"", path_, "\", line=", line_,
                        ", column=", column, ", fields=", fields.size());
    selected_[i] = fields[column];
  }
  fields.swap(selected_);
}

template <class T>
T CsvReader::number(const std::vector<std::string>& fields, size_t index, std::optional<T> if_empty) const {
  LOCKSTEP_CHECK_INDEX(index < fields.size(), "[csv] there is no such field: index=", index,
                       ", fields=", fields.size());
  const std::string& field = fields[index];
  std::string_view text = trimmed(field);
  if (text.empty() && if_empty) return *if_empty;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && end == text.data() + text.size() && !text.empty()) return value;
  const int64_t column = options_.select_columns.empty() ? static_cast<int64_t>(index) : options_.select_columns[index];
  LOCKSTEP_THROW(DataError, "[csv] the field must be a number of its type",
                 code == std::errc::result_out_of_range ? ", in its range" : "", ": file=\"", path_, "\", line=", line_,
                 ", column=", column, ", text=\"", field, "\", type=", kTypeName<T>);
}

template LOCKSTEP_API int32_t CsvReader::number(const std::vector<std::string>&, size_t, std::optional<int32_t>) const;
template LOCKSTEP_API int64_t CsvReader::number(const std::vector<std::string>&, size_t, std::optional<int64_t>) const;
template LOCKSTEP_API float CsvReader::number(const std::vector<std::string>&, size_t, std::optional<float>) const;
template LOCKSTEP_API double CsvReader::number(const std::vector<std::string>&, size_t, std::optional<double>) const;

void CsvReader::end_with(std::string_view problem) {
  ended_ = true;
  refuse(stream_->rule(), problem);
}

void CsvReader::refuse(std::string_view rule, std::string_view text) const {
  LOCKSTEP_THROW(DataError, "[csv] ", rule, ": file=\"", path_, "\", line=", line_, ", record=", records_read_,
                 ", column=", column_, ", text=\"", text, "\"");
}

}  // namespace lockstep::data
