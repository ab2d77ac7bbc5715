#include "lockstep/base/json_text.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace lockstep {
namespace {

/// The bytes of the UTF-8 character that begins at `at`, or 0 where none does.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (first < 0xc2 || length == 0 || at + length > text.size()) return 0;
  uint32_t code = first & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    code = (code << 6U) | (byte(i) & 0x3fU);
  }
  // Longer than needed, a half of a pair of UTF-16, or behind the last character.
  constexpr std::array<uint32_t, 5> kFirst{0, 0, 0x80, 0x800, 0x10000};
  const bool is_half = code >= 0xd800 && code < 0xe000;
  return code < kFirst[length] || is_half || code > 0x10ffff ? 0 : length;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char letter = text[i];
    if (length == 0) {
      quoted += "\xef\xbf\xbd";
    } else if (length == 1 && static_cast<unsigned char>(letter) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(letter));
      quoted += code.data();
    } else {
      if (letter == '"' || letter == '\\') quoted += '\\';
      quoted += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return quoted + '"';
}

}  // namespace lockstep
