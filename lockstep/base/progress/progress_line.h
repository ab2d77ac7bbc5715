#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Internal: the text of progress.
namespace lockstep::progress {

/// What a line may show.
struct LineParts {
  /// The loop that the task is a part of: "epoch 3/10".
  std::string context = {};
  std::string text = {};
  std::string unit = {};
  int64_t done = 0;
  /// 0: not known.
  int64_t total = 0;
  /// Units in a second; 0: not known.
  double rate = 0;
  double seconds = 0;
  const char* value_name = nullptr;
  std::optional<double> value = {};
  /// Background tasks.
  std::string notes = {};
};

struct LineStyle {
  /// Columns of the terminal.
  int width = 80;
  bool utf8 = false;
  bool colour = false;
};

/// Returns the line, narrower than the terminal, so that it never wraps. Where there is no room, first the bar becomes
/// shorter and goes, then these parts in this order: notes, context, rate, time left, value, count. The end of a text
/// that is longer than the terminal is cut off. Control characters are replaced.
LOCKSTEP_API std::string line_of(const LineParts& parts, const LineStyle& style);

/// Returns all parts except for context and notes, without a bar: "epoch 2/10: 160/400 steps, 131 steps/s, 0:02 left".
LOCKSTEP_API std::string plain_line_of(const LineParts& parts);

/// The text without control characters, which are replaced; without `utf8`, others than ASCII are, too.
LOCKSTEP_API std::string printable(std::string_view text, bool utf8);

/// The columns that a UTF-8 text takes on a terminal.
LOCKSTEP_API int columns_of(std::string_view text);

/// "0:12", "12:34", "1:02:03", "2 d 3 h".
LOCKSTEP_API std::string duration_text(double seconds);

/// "812 steps/s", "210 MB/s".
LOCKSTEP_API std::string rate_text(double rate, std::string_view unit);

/// "123/400", "123 records", "1.2/3.4 GB".
LOCKSTEP_API std::string count_text(int64_t done, int64_t total, std::string_view unit);

/// "12 s", or "2:05" above a minute.
LOCKSTEP_API std::string elapsed_text(double seconds);

}  // namespace lockstep::progress
