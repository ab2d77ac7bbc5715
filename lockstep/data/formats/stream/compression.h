#pragma once

#include <ostream>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::data {

/// How a file of records or of text is compressed as a whole.
enum class Compression {
  /// Detected by the first bytes of the file; each reader documents which ones it detects.
  Auto,
  None,
  /// The format of `gzip` (RFC 1952). Concatenated files are read as one.
  Gzip,
  /// TensorFlow's "ZLIB" (RFC 1950).
  Zlib,
};

/// Prints "auto", "none", "gzip" or "zlib".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, Compression compression);

/// Parses TensorFlow's names in upper or lower case: "" and "none", "gzip", "zlib"; also "auto". Throws c10::ValueError
/// for other names.
LOCKSTEP_API Compression parse_compression(std::string_view name);

namespace detail {

/// Returns whether data begin with gzip's magic bytes.
bool begins_as_gzip(std::string_view data);

/// Returns whether data begin like a zlib header. About one in 500 pairs of random bytes does, too.
bool begins_as_zlib(std::string_view data);

/// Resolves Auto for text files and fixed-length records: it detects only gzip, as a text may begin like zlib data
/// ("x^").
Compression resolve_by_gzip_magic(Compression asked, std::string_view data);

}  // namespace detail
}  // namespace lockstep::data
