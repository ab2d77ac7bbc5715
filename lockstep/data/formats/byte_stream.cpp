#include "lockstep/data/formats/byte_stream.h"

#include <utility>

namespace lockstep::data::detail {

Bytes map_whole(const std::string& path, std::string_view operation) {
  auto buffer = Buffer::map_file(path, operation);
  const std::string_view all(buffer->data(), buffer->size());
  return {std::move(buffer), all};
}

ByteStream::ByteStream(Bytes contents, Compression compression) : contents_(std::move(contents)) {
  if (compression != Compression::None) inflated_.emplace(contents_, compression);
}

void ByteStream::consume(size_t count) {
  if (inflated_) {
    inflated_->consume(count);
  } else {
    taken_ += count;
  }
}

}  // namespace lockstep::data::detail
