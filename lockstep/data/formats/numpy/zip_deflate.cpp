#include <algorithm>
#include <array>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/zip.h"

namespace lockstep::data::detail {
namespace {

// zlib counts in 32 bits.
constexpr size_t kPiece = size_t{1} << 30;
constexpr int kRawDeflate = -MAX_WBITS;

Bytef* writable(std::string_view bytes) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib is from before const
}

class Inflater {
 public:
  Inflater() { LOCKSTEP_CHECK_VALUE(::inflateInit2(&stream_, kRawDeflate) == Z_OK, "[zip] no memory left for zlib"); }
  ~Inflater() { ::inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

class Deflater {
 public:
  Deflater() {
    const int code = ::deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRawDeflate, 8, Z_DEFAULT_STRATEGY);
    LOCKSTEP_CHECK_VALUE(code == Z_OK, "[zip] no memory left for zlib");
  }
  ~Deflater() { ::deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void add(std::string_view bytes, int flush, std::string& out) {
    std::array<char, 65536> block;
    do {
      const std::string_view piece = bytes.substr(0, kPiece);
      const bool last = piece.size() == bytes.size();
      stream_.next_in = writable(piece);
      stream_.avail_in = static_cast<uInt>(piece.size());
      do {
        stream_.next_out = reinterpret_cast<Bytef*>(block.data());
        stream_.avail_out = block.size();
        ::deflate(&stream_, last ? flush : Z_NO_FLUSH);
        out.append(block.data(), block.size() - stream_.avail_out);
      } while (stream_.avail_out == 0);
      bytes.remove_prefix(piece.size());
    } while (!bytes.empty());
  }

 private:
  z_stream stream_{};
};

}  // namespace

uint32_t zip_crc(std::string_view bytes, uint32_t before) {
  if (bytes.empty()) return before;  // zlib takes a null pointer for the start of another CRC
  return static_cast<uint32_t>(::crc32_z(before, writable(bytes), bytes.size()));
}

size_t zip_inflate(std::string_view compressed, char* out, size_t size, std::string& problem) {
  Inflater inflater;
  z_stream& stream = inflater.stream();
  size_t made = 0;
  while (made < size) {
    const std::string_view piece = compressed.substr(0, kPiece);
    const size_t room = std::min(size - made, kPiece);
    stream.next_in = writable(piece);
    stream.avail_in = static_cast<uInt>(piece.size());
    stream.next_out = reinterpret_cast<Bytef*>(out + made);
    stream.avail_out = static_cast<uInt>(room);
    const int code = ::inflate(&stream, Z_NO_FLUSH);
    compressed.remove_prefix(piece.size() - stream.avail_in);
    made += room - stream.avail_out;
    if (code == Z_OK) continue;
    if (code == Z_STREAM_END) {
      problem = "the compressed data ends";
    } else {
      problem = stream.msg != nullptr ? stream.msg : "the compressed data is truncated";
    }
    break;
  }
  return made;
}

std::string zip_deflate(std::initializer_list<std::string_view> pieces) {
  Deflater deflater;
  std::string out;
  for (const std::string_view piece : pieces) deflater.add(piece, Z_NO_FLUSH, out);
  deflater.add({}, Z_FINISH, out);
  return out;
}

}  // namespace lockstep::data::detail
