#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/stream/zlib_stream.h"

namespace lockstep::data::detail {
namespace {

[[noreturn]] void fail_without_zlib() {
  LOCKSTEP_THROW(c10::NotImplementedError,
                 "[compression] lockstep was built without zlib; install zlib1g-dev and build again");
}

}  // namespace

bool has_zlib() { return false; }

struct InflatedStream::State {};
InflatedStream::InflatedStream(std::unique_ptr<StoredBytes>, Compression) { fail_without_zlib(); }
InflatedStream::~InflatedStream() = default;
std::string_view InflatedStream::peek() { fail_without_zlib(); }
void InflatedStream::consume(size_t) { fail_without_zlib(); }
size_t InflatedStream::read(char*, size_t) { fail_without_zlib(); }
uint64_t InflatedStream::offset() const { fail_without_zlib(); }
bool InflatedStream::may_hold(uint64_t) const { fail_without_zlib(); }
const std::string& InflatedStream::problem() const { fail_without_zlib(); }

struct DeflatedStream::State {};
DeflatedStream::DeflatedStream(Compression, int, Sink) { fail_without_zlib(); }
DeflatedStream::~DeflatedStream() = default;
DeflatedStream::DeflatedStream(DeflatedStream&&) noexcept = default;
DeflatedStream& DeflatedStream::operator=(DeflatedStream&&) noexcept = default;
void DeflatedStream::write(std::string_view) { fail_without_zlib(); }
void DeflatedStream::flush() { fail_without_zlib(); }
void DeflatedStream::finish() { fail_without_zlib(); }

}  // namespace lockstep::data::detail
