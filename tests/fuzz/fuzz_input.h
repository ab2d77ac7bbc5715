#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/Logging.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bytes.h"

namespace lockstep::data::fuzz {

/// Copies the input into a buffer of exactly its size, so that reading past it is seen.
inline Bytes to_bytes(const uint8_t* data, size_t size) {
  return Bytes(std::string_view(reinterpret_cast<const char*>(data), size));
}

/// Errors come without a backtrace: making one takes a millisecond, ten times as long as all the rest.
inline const bool kWithoutBacktrace = (c10::SetStackTraceFetcher([] { return std::string(); }), true);

/// Runs `body`; a DataError is the right answer to damaged data, anything else is not. What this library was built
/// without is not reached.
template <class F>
void refuse_or_read(F&& body) {
  try {
    body();
  } catch (const DataError&) {
  } catch (const c10::NotImplementedError&) {
  }
}

/// Reads each byte, so that one that lies outside is seen.
inline unsigned touch(std::string_view bytes) {
  unsigned sum = 0;
  for (const char c : bytes) sum += static_cast<unsigned char>(c);
  volatile unsigned kept = sum;
  return kept;
}

}  // namespace lockstep::data::fuzz
