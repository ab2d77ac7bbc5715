#include "lockstep/data/formats/stream/zlib_stream.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>
#include <zlib.h>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kMaxBytes = size_t{1} << 30;  // zlib counts in 32 bits
constexpr uint64_t kLargestRatio = 1032;
constexpr int kGzipWindow = 16 + MAX_WBITS;
constexpr int kMemoryLevel = 8;

}  // namespace

bool has_zlib() { return true; }

struct InflatedStream::State {
  State(std::unique_ptr<StoredBytes> data, Compression which)
      : input(std::move(data)), compression(which), block(kBlock) {
    LOCKSTEP_CHECK_VALUE(which == Compression::Gzip || which == Compression::Zlib,
                         "[inflate] must be gzip or zlib: compression=", which);
    const int code = ::inflateInit2(&zlib, which == Compression::Gzip ? kGzipWindow : MAX_WBITS);
    LOCKSTEP_CHECK_VALUE(code == Z_OK, "[inflate] zlib could not start: code=", code);
  }
  ~State() { ::inflateEnd(&zlib); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Returns how many of `size` bytes were made; 0 ends the data.
  size_t inflate_into(char* out, size_t size) {
    size_t made = 0;
    while (made == 0 && !ended) {
      const std::string_view piece = input->peek();
      const size_t fed = std::min(piece.size(), kMaxBytes);
      zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // zlib only reads it
      zlib.avail_in = static_cast<uInt>(fed);
      zlib.next_out = reinterpret_cast<Bytef*>(out);
      zlib.avail_out = static_cast<uInt>(std::min(size, kMaxBytes));
      const uInt room = zlib.avail_out;
      const int code = ::inflate(&zlib, Z_NO_FLUSH);
      made = room - zlib.avail_out;
      input->consume(fed - zlib.avail_in);
      finish(code, made);
    }
    return made;
  }

  void finish(int code, size_t made) {
    if (code == Z_STREAM_END) {
      end_member();
    } else if (code == Z_BUF_ERROR || (code == Z_OK && made == 0 && input->peek().empty())) {
      end_with(input->problem().empty() ? "the compressed data end too early" : input->problem().c_str());
    } else if (code != Z_OK) {
      end_with(zlib.msg != nullptr ? zlib.msg : "the compressed data are damaged");
    }
  }

  void end_member() {
    const std::string_view behind = input->peek();
    if (behind.empty()) {
      ended = true;
      problem = input->problem();
    } else if (compression == Compression::Gzip && begins_as_gzip(behind)) {
      ::inflateReset(&zlib);
    } else {
      end_with("other bytes follow the compressed data");
    }
  }

  void end_with(const char* reason) {
    ended = true;
    problem = reason;
  }

  std::unique_ptr<StoredBytes> input;
  Compression compression;
  std::vector<char> block;
  size_t begin = 0;  // what of the block is still to be handed out
  size_t end = 0;
  uint64_t handed_out = 0;
  bool ended = false;
  std::string problem;
  z_stream zlib{};
};

InflatedStream::InflatedStream(std::unique_ptr<StoredBytes> compressed, Compression compression)
    : state_(std::make_unique<State>(std::move(compressed), compression)) {}
InflatedStream::~InflatedStream() = default;

std::string_view InflatedStream::peek() {
  State& state = *state_;
  if (state.begin == state.end) {
    state.begin = 0;
    state.end = state.inflate_into(state.block.data(), state.block.size());
  }
  return {state.block.data() + state.begin, state.end - state.begin};
}

void InflatedStream::consume(size_t count) {
  state_->begin += count;
  state_->handed_out += count;
}

size_t InflatedStream::read(char* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    State& state = *state_;
    if (state.begin == state.end && size - done >= kBlock) {
      const size_t made = state.inflate_into(out + done, size - done);  // past the block: one copy less
      if (made == 0) break;
      state.handed_out += made;
      done += made;
      continue;
    }
    const std::string_view some = peek().substr(0, size - done);
    if (some.empty()) break;
    std::memcpy(out + done, some.data(), some.size());
    consume(some.size());
    done += some.size();
  }
  return done;
}

uint64_t InflatedStream::offset() const { return state_->handed_out; }

bool InflatedStream::may_hold(uint64_t size) const {
  // The window of 32 KiB that zlib holds back, and the bits of a code that it has taken already.
  constexpr uint64_t kHeldBack = (uint64_t{32} << 10) + kLargestRatio;
  const uint64_t buffered = state_->end - state_->begin;
  const uint64_t rest = state_->input->left();
  if (rest > std::numeric_limits<uint64_t>::max() / (2 * kLargestRatio)) return true;
  return size <= buffered + rest * kLargestRatio + kHeldBack;
}

const std::string& InflatedStream::problem() const { return state_->problem; }

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
  for (; bytes.size() > kMaxBytes; bytes.remove_prefix(kMaxBytes)) {
    state_->put(bytes.substr(0, kMaxBytes), Z_NO_FLUSH);
  }
  state_->put(bytes, Z_NO_FLUSH);
}

void DeflatedStream::flush() { state_->put({}, Z_SYNC_FLUSH); }

void DeflatedStream::finish() { state_->put({}, Z_FINISH); }

}  // namespace lockstep::data::detail
