#pragma once

#include <ostream>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::data {

/// How a file of records or of text is compressed as a whole.
enum class Compression {
  /// Found out by the file's first bytes; each reader says which of the others it looks for.
  Auto,
  None,
  /// As `gzip` writes it (RFC 1952). Several such files one after the other are read as one.
  Gzip,
  /// As TensorFlow's "ZLIB" (RFC 1950).
  Zlib,
};

/// Prints "auto", "none", "gzip" or "zlib".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, Compression compression);

/// Returns the compression of that name in any case, as TensorFlow has it: "" and "none", "gzip", "zlib"; also "auto".
/// Throws c10::ValueError for other names.
LOCKSTEP_API Compression parse_compression(std::string_view name);

namespace detail {

/// Says whether data begin as gzip's do.
bool begins_as_gzip(std::string_view data);

/// Says whether data begin as zlib's do. One in some five hundred pairs of any other bytes does, too.
bool begins_as_zlib(std::string_view data);

/// Returns the compression to read a text or a file of fixed records with: Auto looks for gzip only, as a text may well
/// begin as zlib's data do ("x^").
Compression resolve_by_gzip_magic(Compression asked, std::string_view data);

}  // namespace detail
}  // namespace lockstep::data
