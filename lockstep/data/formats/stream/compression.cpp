#include "lockstep/data/formats/stream/compression.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

std::ostream& operator<<(std::ostream& out, Compression compression) {
  switch (compression) {
    case Compression::Auto:
      return out << "auto";
    case Compression::None:
      return out << "none";
    case Compression::Gzip:
      return out << "gzip";
    case Compression::Zlib:
      return out << "zlib";
  }
  return out << "unknown";
}

Compression parse_compression(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.empty() || lower == "none") return Compression::None;
  if (lower == "auto") return Compression::Auto;
  if (lower == "gzip") return Compression::Gzip;
  LOCKSTEP_CHECK_VALUE(lower == "zlib",
                       "[compression] must be \"auto\", \"none\", \"gzip\" or \"zlib\": compression=\"", name, "\"");
  return Compression::Zlib;
}

namespace detail {

bool begins_as_gzip(std::string_view data) { return data.substr(0, 3) == "\x1f\x8b\x08"; }

bool begins_as_zlib(std::string_view data) {
  if (data.size() < 2) return false;
  const unsigned first = static_cast<unsigned char>(data[0]);
  const unsigned second = static_cast<unsigned char>(data[1]);
  return (first & 15) == 8 && (first >> 4) <= 7 && (first * 256 + second) % 31 == 0;
}

Compression resolve_by_gzip_magic(Compression asked, std::string_view data) {
  if (asked != Compression::Auto) return asked;
  return begins_as_gzip(data) ? Compression::Gzip : Compression::None;
}

}  // namespace detail
}  // namespace lockstep::data
