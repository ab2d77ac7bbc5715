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
constexpr double kLeft = 58;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 26;
/// Points are marked where there is room for the marks.
constexpr size_t kMarkedPoints = 40;

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
    for (const double value : series.x.step) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
}

StepRange from_zero(double low, double high) {
  if (low > 0 && low < 0.25 * high) low = 0;
  close_range(low, high);
  return {low, high};
}

Scale horizontal(const Chart& chart, StepRange range) {
  if (chart.kind == Chart::Kind::Stack) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    widen_steps(chart, low, high);
    range = from_zero(low, high);
  }
  return {range.low, range.high, kLeft, kWidth - kRight};
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

std::string axes(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out = "<g class=\"grid\">";
  std::string labels = "<g class=\"ticks\">";
  for (const double value : axis_ticks(y.low, y.high, 5, chart.unit)) {
    const std::string at = coordinate(y.at(value));
    out += "<path d=\"M" + coordinate(x.from) + " " + at + "H" + coordinate(x.to) + "\"/>";
    labels += "<text text-anchor=\"end\" x=\"" + coordinate(x.from - 7) + "\" y=\"" + coordinate(y.at(value) + 3.5) +
              "\">" + escape_html(axis_label(value, chart.unit)) + "</text>";
  }
  for (const double value : axis_ticks(x.low, x.high, 4)) {
    const std::string label = axis_label(value, Chart::Unit::Plain);
    const bool is_at_end = x.at(value) + 3.2 * static_cast<double>(label.size()) > kWidth;
    labels += std::string("<text text-anchor=\"") + (is_at_end ? "end" : "middle") + "\" x=\"" +
              coordinate(is_at_end ? kWidth : x.at(value)) + "\" y=\"" + coordinate(kHeight - 8) + "\">" +
              escape_html(label) + "</text>";
  }
  return out + "</g>" + labels + "</g>";
}

std::string draw_line(const Chart& chart, const ChartSeries& series, size_t num_runs, const Scale& x, const Scale& y) {
  std::string line;
  std::string marks;
  std::string crosses;
  bool pen_is_down = false;
  const bool has_marks = series.role != "interval" && (num_runs == 1 || series.role == "validation");
  for (size_t index = 0; index < series.y.size(); ++index) {
    const double at = x.at(series.x.step[index]);
    if (!can_draw(series.y[index])) {
      crosses += "M" + point(at - 3, kTop - 3) + "l6 6m0 -6l-6 6";
      pen_is_down = false;
      continue;
    }
    const double height = y.at(series.y[index]);
    const bool is_alone = (index == 0 || !can_draw(series.y[index - 1])) &&
                          (index + 1 == series.y.size() || !can_draw(series.y[index + 1]));
    line += (pen_is_down ? "L" : "M") + point(at, height);
    pen_is_down = true;
    if (is_alone || (has_marks && series.y.size() <= kMarkedPoints)) {
      marks += "<circle cx=\"" + coordinate(at) + "\" cy=\"" + coordinate(height) + "\" r=\"" +
               (is_alone ? "3.5" : "2.5") + "\"/>";
    }
  }
  std::string out = "<g class=\"series " + series_class(chart, series, num_runs) + "\">";
  if (!line.empty()) out += "<path d=\"" + line + "\"/>";
  if (!crosses.empty()) out += "<path class=\"bad\" d=\"" + crosses + "\"/>";
  return out + marks + "</g>";
}

std::string draw_stack(const Chart& chart, const Scale& x, const Scale& y) {
  const size_t count = chart.series.front().y.size();
  std::vector<double> below(count, 0);
  std::string out;
  for (size_t part = 0; part < chart.series.size(); ++part) {
    const ChartSeries& series = chart.series[part];
    std::string upper;
    std::string lower;
    for (size_t index = 0; index < count; ++index) {
      const double left = count == 1 ? x.from : x.at(series.x.step[index]);
      const double top = below[index] + series.y[index];
      upper += (index == 0 ? "M" : "L") + point(left, y.at(top));
      if (count == 1) upper += "H" + coordinate(x.to);
      lower = "L" + point(count == 1 ? x.to : left, y.at(below[index])) + (count == 1 ? "H" + coordinate(left) : "") +
              lower;
      below[index] = top;
    }
    out += "<path class=\"part p" + std::to_string(part) + "\" d=\"" + upper + lower + "Z\"/>";
  }
  return out;
}

}  // namespace

size_t dashes_of_run(size_t run) { return (run + run / 8) % 8; }

std::string series_class(const Chart& chart, const ChartSeries& series, size_t num_runs) {
  const bool is_behind = series.role == "interval" && std::any_of(chart.series.begin(), chart.series.end(),
                                                                  [](const auto& s) { return s.role != "interval"; });
  const size_t colour = num_runs == 1 ? (series.role == "validation" ? 1 : 0) : series.run % 8;
  const size_t dashes = num_runs == 1 ? colour : dashes_of_run(series.run);
  return "c" + std::to_string(colour) + " d" + std::to_string(dashes) + (is_behind ? " faint" : "");
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

std::string axis_label(double value, Chart::Unit unit) {
  if (value == 0) return "0";
  if (unit == Chart::Unit::Seconds) return format_seconds(value);
  if (unit == Chart::Unit::Bytes) return format_bytes(value);
  return format_number(value);
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
  const Scale x = horizontal(chart, range);
  const Scale y = vertical(chart);
  std::string out = "<svg viewBox=\"0 0 " + coordinate(kWidth) + " " + coordinate(kHeight) +
                    "\" role=\"img\" aria-label=\"" + escape_html(chart.title) + " over steps\">" + axes(chart, x, y);
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
