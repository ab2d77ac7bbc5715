#include "lockstep/data/formats/stream/byte_stream.h"

#include <utility>

namespace lockstep::data::detail {

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
