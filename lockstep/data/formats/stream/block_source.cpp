#include "lockstep/data/formats/stream/block_source.h"

#include <algorithm>
#include <cstring>

namespace lockstep::data::detail {

size_t BlockSource::read(char* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const std::string_view some = peek().substr(0, size - done);
    if (some.empty()) break;
    std::memcpy(out + done, some.data(), some.size());
    consume(some.size());
    done += some.size();
  }
  return done;
}

uint64_t BlockSource::discard(uint64_t size) {
  uint64_t done = 0;
  while (done < size) {
    const size_t some = std::min<uint64_t>(peek().size(), size - done);
    if (some == 0) break;
    consume(some);
    done += some;
  }
  return done;
}

}  // namespace lockstep::data::detail
