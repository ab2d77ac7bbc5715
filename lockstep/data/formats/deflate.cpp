#include "lockstep/data/formats/deflate.h"

#include <utility>
#include <vector>
#include <zlib.h>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kMostInput = size_t{1} << 30;  // zlib counts in 32 bits
constexpr int kGzipWindow = 16 + MAX_WBITS;
constexpr int kMemoryLevel = 8;

}  // namespace

struct DeflatedStream::State {
  State(Compression compression, int level, Sink to) : sink(std::move(to)), block(kBlock) {
    LOCKSTEP_CHECK_VALUE(compression == Compression::Gzip || compression == Compression::Zlib,
                         "[deflate] must be gzip or zlib: compression=", compression);
    LOCKSTEP_CHECK_VALUE(level >= -1 && level <= 9, "[deflate] must be -1 to 9: level=", level);
    const int window = compression == Compression::Gzip ? kGzipWindow : MAX_WBITS;
    const int code = ::deflateInit2(&zlib, level, Z_DEFLATED, window, kMemoryLevel, Z_DEFAULT_STRATEGY);
    LOCKSTEP_CHECK_VALUE(code == Z_OK, "[deflate] zlib could not start: code=", code);
  }
  ~State() { ::deflateEnd(&zlib); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void put(std::string_view bytes, int flush) {
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib only reads it
    zlib.avail_in = static_cast<uInt>(bytes.size());
    do {
      zlib.next_out = reinterpret_cast<Bytef*>(block.data());
      zlib.avail_out = static_cast<uInt>(block.size());
      ::deflate(&zlib, flush);
      sink({block.data(), block.size() - zlib.avail_out});
    } while (zlib.avail_out == 0);
  }

  Sink sink;
  std::vector<char> block;
  z_stream zlib{};
};

DeflatedStream::DeflatedStream(Compression compression, int level, Sink sink)
    : state_(std::make_unique<State>(compression, level, std::move(sink))) {}
DeflatedStream::~DeflatedStream() = default;
DeflatedStream::DeflatedStream(DeflatedStream&&) noexcept = default;
DeflatedStream& DeflatedStream::operator=(DeflatedStream&&) noexcept = default;

void DeflatedStream::write(std::string_view bytes) {
  for (; bytes.size() > kMostInput; bytes.remove_prefix(kMostInput)) {
    state_->put(bytes.substr(0, kMostInput), Z_NO_FLUSH);
  }
  state_->put(bytes, Z_NO_FLUSH);
}

void DeflatedStream::flush() { state_->put({}, Z_SYNC_FLUSH); }

void DeflatedStream::finish() { state_->put({}, Z_FINISH); }

}  // namespace lockstep::data::detail
