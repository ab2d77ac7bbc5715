#include "lockstep/base/progress/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

namespace lockstep::progress {
namespace {

constexpr int kShortestBar = 8;
constexpr int kLongestBar = 32;
constexpr double kMinute = 60;
constexpr double kHour = 60 * kMinute;
constexpr double kDay = 24 * kHour;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), pattern, args...);
  return text.data();
}

/// One character of a UTF-8 text.
struct Character {
  size_t bytes = 1;
  int columns = 1;
};

/// Scripts and pictures that take two columns.
bool is_wide(uint32_t code) {
  return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
         (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
         (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
         (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1faff) ||
         (code >= 0x20000 && code <= 0x3fffd);
}

Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t bytes = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 1 || at + bytes > text.size()) return {};
  uint32_t code = first & (0xffU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80U) return {};
    code = (code << 6U) | (byte(at + i) & 0x3fU);
  }
  return {bytes, is_wide(code) ? 2 : 1};
}

std::string cut(std::string_view text, int width) {
  int columns = 0;
  size_t i = 0;
  while (i < text.size()) {
    const Character next = character_at(text, i);
    if (columns + next.columns > width) break;
    columns += next.columns;
    i += next.bytes;
  }
  return std::string(text.substr(0, i));
}

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

std::string bar(double part, int cells, const LineStyle& style) {
  if (!style.utf8) cells -= 2;  // brackets
  const int done = std::clamp(static_cast<int>(std::floor(part * cells)), 0, cells);
  std::string full = repeated(style.utf8 ? "━" : "=", done);
  std::string rest = repeated(style.utf8 ? "─" : "-", cells - done);
  if (!style.utf8 && done > 0 && done < cells) full.back() = '>';
  if (style.colour) {
    full = "\033[32m" + full + "\033[0m";
    rest = "\033[2m" + rest + "\033[0m";
  }
  return style.utf8 ? full + rest : "[" + full + rest + "]";
}

/// What the name of a unit of bytes is, and what bytes are divided by.
struct Scale {
  const char* name;
  double divisor;
};

Scale scale_of(double bytes) {
  constexpr std::array kScales{Scale{"TB", 1e12}, Scale{"GB", 1e9}, Scale{"MB", 1e6}, Scale{"kB", 1e3}};
  for (const Scale& scale : kScales) {
    if (bytes >= scale.divisor) return scale;
  }
  return {"B", 1};
}

std::string amount(double value) {
  if (value >= 100 || value == std::floor(value)) return format("%.0f", value);
  return format(value >= 10 ? "%.1f" : value >= 1 ? "%.2f" : "%.2g", value);
}

std::string scaled(double bytes, const Scale& scale) {
  const double value = bytes / scale.divisor;
  return format(value >= 100 || scale.divisor == 1 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

/// The parts after the bar, in the order in which they are shown; an empty one is left out.
struct Fields {
  std::string count;
  std::string rate;
  std::string value;
  std::string time;
  std::string notes;

  std::vector<std::string> shown() const {
    std::vector<std::string> all{count, rate, value, time, notes};
    std::erase(all, "");
    return all;
  }
};

Fields fields_of(const LineParts& parts, bool utf8) {
  Fields fields;
  if (!parts.unit.empty()) fields.count = count_text(parts.done, parts.total, parts.unit);
  if (!parts.unit.empty() && parts.rate > 0) fields.rate = rate_text(parts.rate, parts.unit);
  if (parts.value_name != nullptr && parts.value) fields.value = format("%.32s %.4g", parts.value_name, *parts.value);
  if (parts.total <= 0) {
    fields.time = elapsed_text(parts.seconds);
  } else if (parts.rate > 0) {
    fields.time = duration_text(static_cast<double>(std::max<int64_t>(parts.total - parts.done, 0)) / parts.rate);
    fields.time += " left";
  }
  fields.notes = printable(parts.notes, utf8);
  return fields;
}

int width_of(const std::string& text, const Fields& fields) {
  int width = columns_of(text);
  for (const std::string& field : fields.shown()) width += 2 + columns_of(field);
  return width;
}

}  // namespace

std::string printable(std::string_view text, bool utf8) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t bytes = character_at(text, i).bytes;
    const bool is_control = bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool is_shown = bytes == 1 ? first >= 0x20 && first < 0x7f : utf8 && !is_control;
    result += is_shown ? std::string(text.substr(i, bytes)) : "?";
    i += bytes;
  }
  return result;
}

int columns_of(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    columns += next.columns;
    i += next.bytes;
  }
  return columns;
}

std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return "?";
  seconds = std::ceil(seconds);
  const auto whole = static_cast<long long>(seconds);
  if (seconds >= kDay) return format("%lld d %lld h", whole / 86400, whole % 86400 / 3600);
  if (seconds >= kHour) return format("%lld:%02lld:%02lld", whole / 3600, whole % 3600 / 60, whole % 60);
  return format("%lld:%02lld", whole / 60, whole % 60);
}

std::string elapsed_text(double seconds) {
  return seconds < kMinute ? format("%.0f s", std::floor(seconds)) : duration_text(std::floor(seconds));
}

std::string rate_text(double rate, std::string_view unit) {
  if (unit == "bytes") {
    const Scale scale = scale_of(rate);
    return scaled(rate, scale) + " " + scale.name + "/s";
  }
  return amount(rate) + " " + std::string(unit) + "/s";
}

std::string count_text(int64_t done, int64_t total, std::string_view unit) {
  if (total > 0) done = std::min(done, total);
  if (unit == "bytes") {
    const Scale scale = scale_of(static_cast<double>(total > 0 ? total : done));
    const auto part = [&](int64_t bytes) { return scaled(static_cast<double>(bytes), scale); };
    return (total > 0 ? part(done) + "/" + part(total) : part(done)) + " " + scale.name;
  }
  if (total > 0) return format("%lld/%lld", static_cast<long long>(done), static_cast<long long>(total));
  return format("%lld ", static_cast<long long>(done)) + std::string(unit);
}

std::string line_of(const LineParts& parts, const LineStyle& style) {
  const int width = std::max(style.width - 1, 1);
  const std::string own = printable(parts.text, style.utf8);
  std::string text = parts.context.empty() ? own : printable(parts.context, style.utf8) + ": " + own;
  Fields fields = fields_of(parts, style.utf8);
  const auto is_too_wide = [&] { return width_of(text, fields) > width; };
  if (is_too_wide()) fields.notes.clear();
  if (is_too_wide()) text = own;
  for (std::string* const field : {&fields.rate, &fields.time, &fields.value, &fields.count}) {
    if (is_too_wide()) field->clear();
  }
  if (is_too_wide()) return cut(text, width);

  const int cells = std::min(kLongestBar, width - width_of(text, fields) - 1);
  const bool has_bar = parts.total > 0 && !parts.unit.empty() && cells >= kShortestBar;
  if (has_bar) text += " " + bar(static_cast<double>(parts.done) / static_cast<double>(parts.total), cells, style);
  std::string separator = has_bar ? " " : ", ";
  for (const std::string& field : fields.shown()) {
    text += separator + field;
    separator = ", ";
  }
  return text;
}

std::string plain_line_of(const LineParts& parts) {
  Fields fields = fields_of(parts, true);
  fields.notes.clear();
  if (parts.total > 0 && parts.unit != "bytes" && !parts.unit.empty()) fields.count += " " + parts.unit;
  std::string text = printable(parts.text, true);
  std::string separator = ": ";
  for (const std::string& field : fields.shown()) {
    text += separator + field;
    separator = ", ";
  }
  return text;
}

}  // namespace lockstep::progress
