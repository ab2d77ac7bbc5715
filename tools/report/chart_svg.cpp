#include "tools/report/chart_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tools/report/format_numbers.h"

namespace lockstep::tools::reports {
namespace {

constexpr double kWidth = 430;
constexpr double kHeight = 210;
/// Room for the numbers of the axis: at least this, and this for each letter.
constexpr double kLeft = 58;
constexpr double kLetter = 6.2;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 26;
/// Points are marked where there is room for the marks.
constexpr size_t kMarkedPoints = 40;
constexpr size_t kMarkedStretches = 12;
/// A stretch that is narrower is a point to the eye.
constexpr double kNarrow = 3;

/// A range of values and where it is on the picture.
struct Scale {
  double low = 0;
  double high = 1;
  double from = 0;
  double to = 1;

  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

std::string coordinate(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string point(double x, double y) { return coordinate(x) + " " + coordinate(y); }

/// Differences of larger numbers are not finite.
bool can_draw(double value) { return std::abs(value) <= 1e300; }

/// Where the finite values of a range begin and end; 0 and 1 without any.
void close_range(double& low, double& high) {
  if (!(low <= high)) {
    low = 0;
    high = 1;
  }
  if (low == high) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= low == 0 ? 0 : room;
    high += room;
  }
}

void widen_steps(const Chart& chart, double& low, double& high) {
  for (const ChartSeries& series : chart.series) {
    for (const auto* values : {&series.x.step, &series.begin.step}) {
      for (const double value : *values) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
  }
}

StepRange from_zero(double low, double high) {
  if (low > 0 && low < 0.25 * high) low = 0;
  close_range(low, high);
  return {low, high};
}

Scale horizontal(const Chart& chart, StepRange range, double left) {
  if (chart.kind == Chart::Kind::Stack) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    widen_steps(chart, low, high);
    range = from_zero(low, high);
  }
  return {range.low, range.high, left, kWidth - kRight};
}

Scale vertical(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  if (chart.kind == Chart::Kind::Stack) {
    for (size_t index = 0; index < chart.series.front().y.size(); ++index) {
      double sum = 0;
      for (const ChartSeries& series : chart.series) sum += series.y[index];
      high = std::max(high, sum);
    }
    low = 0;
  }
  for (const ChartSeries& series : chart.series) {
    for (const double value : series.y) {
      if (chart.kind == Chart::Kind::Stack || !can_draw(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (chart.from_zero && low > 0) low = 0;
  close_range(low, high);
  const double room = (high - low) * 0.04;
  high += room;
  if (!chart.from_zero) low = low >= 0 ? std::max(0.0, low - room) : low - room;
  return {low, high, kHeight - kBottom, kTop};
}

size_t letters_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xc0U) != 0x80U;  // the first byte of each
  }));
}

/// The numbers of the vertical axis and where curves begin beside them.
struct AxisNumbers {
  std::vector<double> ticks;
  std::vector<std::string> labels;
  double left = kLeft;
};

AxisNumbers axis_numbers(const Chart& chart, const Scale& y) {
  AxisNumbers result;
  result.ticks = axis_ticks(y.low, y.high, 5, chart.unit);
  result.labels = axis_labels(result.ticks, chart.unit);
  for (const std::string& label : result.labels) {
    result.left = std::max(result.left, kLetter * static_cast<double>(letters_of(label)) + 10);
  }
  return result;
}

std::string axes(const AxisNumbers& numbers, const Scale& x, const Scale& y) {
  std::string out = "<g class=\"grid\">";
  std::string labels = "<g class=\"ticks\">";
  for (size_t index = 0; index < numbers.ticks.size(); ++index) {
    const double at = y.at(numbers.ticks[index]);
    out += "<path d=\"M" + point(x.from, at) + "H" + coordinate(x.to) + "\"/>";
    labels += "<text text-anchor=\"end\" x=\"" + coordinate(x.from - 7) + "\" y=\"" + coordinate(at + 3.5) + "\">" +
              escape_html(numbers.labels[index]) + "</text>";
  }
  const std::vector<double> across = axis_ticks(x.low, x.high, 4);
  const std::vector<std::string> names = axis_labels(across, Chart::Unit::Plain);
  for (size_t index = 0; index < across.size(); ++index) {
    const double at = x.at(across[index]);
    const bool is_at_end = at + kLetter / 2 * static_cast<double>(letters_of(names[index])) > kWidth;
    labels += std::string("<text text-anchor=\"") + (is_at_end ? "end" : "middle") + "\" x=\"" +
              coordinate(is_at_end ? kWidth : at) + "\" y=\"" + coordinate(kHeight - 8) + "\">" +
              escape_html(names[index]) + "</text>";
  }
  return out + "</g>" + labels + "</g>";
}

/// The texts of a curve while it is drawn.
struct CurveParts {
  std::string line;
  std::string marks;
  std::string crosses;
  bool pen_is_down = false;
};

void add_mark(CurveParts& out, double x, double y, bool is_large) {
  out.marks +=
      "<circle cx=\"" + coordinate(x) + "\" cy=\"" + coordinate(y) + "\" r=\"" + (is_large ? "3.5" : "2.5") + "\"/>";
}

/// A value that holds from `begin` to `end`; it is held until the next one begins.
void add_stretch(CurveParts& out, double begin, double end, double y, bool has_mark) {
  out.line += out.pen_is_down ? "H" + coordinate(begin) + "V" + coordinate(y) : "M" + point(begin, y);
  out.line += "H" + coordinate(end);
  if (has_mark && end - begin < kNarrow) add_mark(out, (begin + end) / 2, y, false);
}

std::string draw_line(const Chart& chart, const ChartSeries& series, size_t num_runs, const Scale& x, const Scale& y) {
  CurveParts out;
  const bool is_short = series.y.size() <= kMarkedPoints;
  const bool is_marked = num_runs == 1 || (series.role == "validation" && num_runs <= kMarkedRuns);
  const bool has_marks = is_short && series.role != "interval" && is_marked;
  for (size_t index = 0; index < series.y.size(); ++index) {
    const double at = x.at(series.x.step[index]);
    if (!can_draw(series.y[index])) {
      out.crosses += "M" + point(at - 3, kTop - 3) + "l6 6m0 -6l-6 6";
      out.pen_is_down = false;
      continue;
    }
    const double height = y.at(series.y[index]);
    const bool is_alone = (index == 0 || !can_draw(series.y[index - 1])) &&
                          (index + 1 == series.y.size() || !can_draw(series.y[index + 1]));
    if (series.has_stretches()) {
      add_stretch(out, x.at(series.begin.step[index]), at, height, series.y.size() <= kMarkedStretches || is_alone);
    } else {
      out.line += (out.pen_is_down ? "L" : "M") + point(at, height);
      if (is_alone || has_marks) add_mark(out, at, height, is_alone);
    }
    out.pen_is_down = true;
  }
  std::string result = "<g class=\"series " + series_class(chart, series, num_runs) + "\">";
  if (!out.line.empty()) result += "<path d=\"" + out.line + "\"/>";
  if (!out.crosses.empty()) result += "<path class=\"bad\" d=\"" + out.crosses + "\"/>";
  return result + out.marks + "</g>";
}

std::string draw_stack(const Chart& chart, const Scale& x, const Scale& y) {
  const size_t count = chart.series.front().y.size();
  std::vector<double> below(count, 0);
  std::string out;
  for (const ChartSeries& series : chart.series) {
    std::string upper;
    std::string lower;
    for (size_t index = 0; index < count; ++index) {
      const std::string begin = coordinate(x.at(series.begin.step[index]));
      const std::string end = coordinate(x.at(series.x.step[index]));
      const std::string bottom = coordinate(y.at(below[index]));
      below[index] += series.y[index];
      const std::string top = coordinate(y.at(below[index]));
      upper += (index == 0 ? "M" + begin + " " + top : "H" + begin + "V" + top) + "H" + end;
      lower = (index + 1 == count ? "L" + end + " " + bottom : "H" + end + "V" + bottom) + "H" + begin + lower;
    }
    out += "<path class=\"part p" + std::to_string(part_index(series.role)) + "\" d=\"" + upper + lower + "Z\"/>";
  }
  return out;
}

/// The digits after the point that multiples of `step` have.
int decimals_of(double step) {
  for (int digits = 0; digits < 15; ++digits) {
    const double scaled = step * std::pow(10.0, digits);
    if (scaled > 0.5 && std::abs(scaled - std::round(scaled)) < 1e-4 * scaled) return digits;
  }
  return 15;
}

/// A number with the digits that tell it from the next one, `step` away; `largest` is the largest on the axis.
std::string axis_number(double value, double step, double largest) {
  std::array<char, 64> text{};
  if (value == 0) return "0";
  if (largest >= 1e9 || largest < 1e-4) {
    const double power = std::floor(std::log10(step) + 1e-9);
    const int digits =
        static_cast<int>(std::floor(std::log10(std::abs(value))) - power) + decimals_of(step / std::pow(10.0, power));
    std::snprintf(text.data(), text.size(), "%.*e", std::clamp(digits, 0, 16), value);
    return text.data();
  }
  std::snprintf(text.data(), text.size(), "%.*f", decimals_of(step), value);
  return with_spaces(text.data());
}

}  // namespace

size_t dashes_of_run(size_t run) { return (run + run / 8) % 8; }

std::string series_class(const Chart& chart, const ChartSeries& series, size_t num_runs) {
  const bool is_behind = series.role == "interval" && std::any_of(chart.series.begin(), chart.series.end(),
                                                                  [](const auto& s) { return s.role != "interval"; });
  // Among many runs the curves of training step back behind those of validation.
  const bool is_half =
      num_runs > kMarkedRuns && series.role == "train" &&
      std::any_of(chart.series.begin(), chart.series.end(), [](const auto& s) { return s.role == "validation"; });
  const size_t colour = num_runs == 1 ? (series.role == "validation" ? 1 : 0) : series.run % 8;
  const size_t dashes = num_runs == 1 ? colour : dashes_of_run(series.run);
  return "c" + std::to_string(colour) + " d" + std::to_string(dashes) + (is_behind ? " faint" : "") +
         (is_half ? " half" : "");
}

std::vector<double> axis_ticks(double low, double high, int count, Chart::Unit unit) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(high - low)) return ticks;
  if (unit == Chart::Unit::Bytes && high >= 1024) {
    const double scale = std::pow(1024.0, std::floor(std::log2(high) / 10));
    for (const double value : axis_ticks(low / scale, high / scale, count)) ticks.push_back(value * scale);
    return ticks;
  }
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const bool has_quarters = power != 1;  // 25 and 0.25, not 2.5 steps
  const double step = power * (digit <= 1                     ? 1
                               : digit <= 2                   ? 2
                               : digit <= 2.5 && has_quarters ? 2.5
                               : digit <= 5                   ? 5
                                                              : 10);
  const double first = std::ceil(low / step - 1e-9);
  for (int index = 0; index <= 2 * count; ++index) {  // a bound, as large numbers do not change by one
    const double value = (first + index) * step;
    if (value <= high + step * 1e-9) ticks.push_back(first + index == 0 ? 0 : value);
  }
  return ticks;
}

std::vector<std::string> axis_labels(const std::vector<double>& ticks, Chart::Unit unit) {
  static constexpr std::array<const char*, 6> kBytes{" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  double largest = 0;
  for (const double value : ticks) largest = std::max(largest, std::abs(value));
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : largest;
  double scale = 1;
  std::string name;
  if (unit == Chart::Unit::Seconds) {
    scale = largest >= 1 ? 1 : largest >= 1e-3 ? 1e-3 : 1e-6;
    name = largest >= 1 ? " s" : largest >= 1e-3 ? " ms" : " µs";
  } else if (unit == Chart::Unit::Bytes) {
    size_t power = 0;
    for (; largest / scale >= 1024 && power + 1 < kBytes.size(); ++power) scale *= 1024;
    name = kBytes[power];
  }
  std::vector<std::string> labels;
  for (const double value : ticks) {
    const std::string number = axis_number(value / scale, step / scale, largest / scale);
    labels.push_back(value == 0 ? number : number + name);
  }
  return labels;
}

StepRange step_range(const std::vector<Chart>& charts) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Chart& chart : charts) {
    if (chart.kind == Chart::Kind::Lines) widen_steps(chart, low, high);
  }
  return from_zero(low, high);
}

std::string draw_chart(const Chart& chart, const StepRange& range, size_t num_runs) {
  const Scale y = vertical(chart);
  const AxisNumbers numbers = axis_numbers(chart, y);
  const Scale x = horizontal(chart, range, numbers.left);
  std::string out = "<svg viewBox=\"0 0 " + coordinate(kWidth) + " " + coordinate(kHeight) +
                    "\" role=\"img\" aria-label=\"" + escape_html(chart.title) + " over steps\">" + axes(numbers, x, y);
  if (chart.kind == Chart::Kind::Stack) {
    out += draw_stack(chart, x, y);
  } else {
    for (const ChartSeries& series : chart.series) out += draw_line(chart, series, num_runs, x, y);
  }
  return out + "</svg>";
}

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

}  // namespace lockstep::tools::reports
