#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/deflate.h"
#include "lockstep/data/formats/inflate.h"

namespace lockstep::data::detail {
namespace {

[[noreturn]] void refuse() {
  throw c10::NotImplementedError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                 "[compression] lockstep was built without zlib; install zlib1g-dev and build again");
}

}  // namespace

bool has_zlib() { return false; }

struct InflatedStream::State {};
InflatedStream::InflatedStream(Bytes, Compression) { refuse(); }
InflatedStream::~InflatedStream() = default;
InflatedStream::InflatedStream(InflatedStream&&) noexcept = default;
InflatedStream& InflatedStream::operator=(InflatedStream&&) noexcept = default;
std::string_view InflatedStream::peek() { refuse(); }
void InflatedStream::consume(size_t) { refuse(); }
size_t InflatedStream::read(char*, size_t) { refuse(); }
uint64_t InflatedStream::discard(uint64_t) { refuse(); }
uint64_t InflatedStream::offset() const { refuse(); }
bool InflatedStream::may_hold(uint64_t) const { refuse(); }
const std::string& InflatedStream::problem() const { refuse(); }

struct DeflatedStream::State {};
DeflatedStream::DeflatedStream(Compression, int, Sink) { refuse(); }
DeflatedStream::~DeflatedStream() = default;
DeflatedStream::DeflatedStream(DeflatedStream&&) noexcept = default;
DeflatedStream& DeflatedStream::operator=(DeflatedStream&&) noexcept = default;
void DeflatedStream::write(std::string_view) { refuse(); }
void DeflatedStream::flush() { refuse(); }
void DeflatedStream::finish() { refuse(); }

}  // namespace lockstep::data::detail
