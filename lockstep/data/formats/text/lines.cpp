#include "lockstep/data/formats/text/lines.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/formats/skip_one_by_one.h"
#include "lockstep/data/formats/stream/byte_stream.h"

namespace lockstep::data {
namespace {

std::string_view without_carriage_return(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

LineReader::LineReader(std::string path, LineReaderOptions options)
    : LineReader(detail::StoredFile(path, "text_lines", options.access), path, options) {}

LineReader::LineReader(Bytes contents, std::string name, LineReaderOptions options)
    : LineReader(detail::StoredFile(std::move(contents)), std::move(name), options) {}

LineReader::LineReader(detail::StoredFile file, std::string name, LineReaderOptions options) : path_(std::move(name)) {
  const Compression compression = detail::resolve_by_gzip_magic(options.compression, file.head());
  stream_ = std::make_unique<detail::ByteStream>(std::move(file), compression);
}

LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

uint64_t LineReader::offset() const { return stream_->offset(); }

// Pages of a mapped file that could not be read are full of zeros.
void LineReader::check_pages() {
  ended_ = true;
  stream_->contents().buffer()->check();
  ended_ = false;
}

bool LineReader::next(Bytes& line) {
  if (ended_) return false;
  if (stream_->in_blocks()) return next_of_blocks(line);
  const std::string_view rest = stream_->peek();
  if (rest.empty()) return false;
  const size_t end = std::min(rest.find('\n'), rest.size());
  if (detail::any_bus_error()) check_pages();
  std::string_view found = rest.substr(0, end);
  if (end < rest.size()) found = without_carriage_return(found);
  line = Bytes(stream_->contents().buffer(), found);
  stream_->consume(std::min(end + 1, rest.size()));
  ++lines_read_;
  return true;
}

int64_t LineReader::skip(int64_t count) {
  Bytes line;
  return detail::skip_one_by_one(count, [&] { return next(line); });
}

bool LineReader::next_of_blocks(Bytes& line) {
  const uint64_t begin = offset();
  std::string text;
  bool ended = false;
  while (!ended) {
    const std::string_view block = stream_->peek();
    if (block.empty()) break;
    const size_t end = block.find('\n');
    ended = end != std::string_view::npos;
    text += block.substr(0, end);
    stream_->consume(ended ? end + 1 : block.size());
  }
  if (!ended) {
    ended_ = !stream_->problem().empty();
    LOCKSTEP_CHECK_DATA(!ended_, "[text_lines] ", stream_->rule(), ": file=\"", path_, "\", offset=", begin,
                        ", line=", lines_read_++, " (", stream_->problem(), ")");
    if (text.empty()) return false;
  }
  line = Bytes(ended ? without_carriage_return(text) : std::string_view(text));
  ++lines_read_;
  return true;
}

}  // namespace lockstep::data
