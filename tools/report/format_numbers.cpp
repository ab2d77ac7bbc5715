#include "tools/report/format_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace lockstep::tools::reports {
namespace {

std::string printed(const char* format, int digits, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, digits, value);
  return text.data();
}

}  // namespace

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  const double size = std::abs(value);
  // Rounded to whole numbers from where that keeps the digits, so that 1234 is not 1.23e+03.
  if (size < std::pow(10.0, digits - 1) || size >= 1e9) return printed("%.*g", digits, value);
  return with_spaces(printed("%.*f", 0, value));
}

std::string with_spaces(std::string text) {
  const size_t whole_end = std::min(text.find('.'), text.size());
  const size_t first = text.starts_with('-') ? 1 : 0;
  if (whole_end < first + 5) return text;
  for (size_t at = whole_end - 3; at > first && at < whole_end; at -= 3) text.insert(at, "\u202f");
  return text;
}

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0";
  const double size = std::abs(seconds);
  if (size >= 1) return format_number(seconds, 3) + " s";
  if (size >= 1e-3) return format_number(seconds * 1e3, 3) + " ms";
  return format_number(seconds * 1e6, 3) + " µs";
}

std::string format_duration(double seconds) {
  if (seconds < 60) return format_number(seconds, 3) + " s";
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  const int64_t minutes = whole / 60;
  std::array<char, 64> text{};
  if (minutes < 60) {
    std::snprintf(text.data(), text.size(), "%lld min %02lld s", static_cast<long long>(minutes),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%lld h %02lld min", static_cast<long long>(minutes / 60),
                  static_cast<long long>(minutes % 60));
  }
  return text.data();
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return format_number(bytes, 3) + " " + kUnits[unit];
}

}  // namespace lockstep::tools::reports
