#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/report/chart_svg.h"
#include "tools/report/format_numbers.h"
#include "tools/report/report_sections.h"

namespace lockstep::tools::reports {
namespace {

/// One figure of all runs.
struct Figure {
  std::string name;
  /// Texts, one for each run; empty where it has none.
  std::vector<std::string> texts;
  /// Whether it is the best of those that can be compared.
  std::vector<bool> is_best;
};

using Value = std::function<std::optional<double>(const RunFacts&)>;
using Text = std::function<std::string(const RunFacts&, double)>;

/// -1: the smallest is best, 1: the largest, 0: none.
int better_direction(const std::string& name) {
  if (name.find("loss") != std::string::npos || name.find("error") != std::string::npos) return -1;
  for (const char* word : {"accuracy", "auc", "f1", "precision", "recall"}) {
    if (name.find(word) != std::string::npos) return 1;
  }
  return 0;
}

Figure figure_of(const Report& report, const std::string& name, const Value& value, const Text& text, int better) {
  Figure figure{name, {}, {}};
  std::vector<std::optional<double>> values;
  for (const RunFacts& facts : report.facts) values.push_back(value(facts));
  std::optional<double> best;
  int known = 0;
  for (const auto& entry : values) {
    if (!entry || !std::isfinite(*entry)) continue;
    ++known;
    if (!best || (*entry - *best) * better > 0) best = entry;
  }
  for (size_t index = 0; index < values.size(); ++index) {
    const auto& entry = values[index];
    figure.texts.push_back(entry ? text(report.facts[index], *entry) : "");
    figure.is_best.push_back(better != 0 && known > 1 && entry && best && *entry == *best);
  }
  return figure;
}

Figure text_figure(const Report& report, const std::string& name, const std::function<std::string(size_t)>& text) {
  Figure figure{name, {}, std::vector<bool>(report.runs.size(), false)};
  for (size_t index = 0; index < report.runs.size(); ++index) figure.texts.push_back(text(index));
  return figure;
}

/// The last value of each name, with its epoch where later ones have none.
void add_last_values(const Report& report, std::vector<Figure>& out) {
  std::vector<std::string> names;
  for (const RunFacts& facts : report.facts) {
    for (const LastValue& entry : facts.last) {
      if (std::find(names.begin(), names.end(), entry.name) == names.end()) names.push_back(entry.name);
    }
  }
  for (const std::string& name : names) {
    const auto value = [&](const RunFacts& facts) {
      const LastValue* found = last_value(facts, name);
      return found != nullptr ? std::optional(found->value) : std::nullopt;
    };
    const auto text = [&](const RunFacts& facts, double number) {
      const auto epoch = last_value(facts, name)->epoch;
      return format_number(number) + (epoch ? " (epoch " + std::to_string(*epoch) + ")" : "");
    };
    out.push_back(figure_of(report, "Last " + name, value, text, better_direction(name)));
  }
}

std::vector<Figure> all_figures(const Report& report) {
  std::vector<Figure> out{text_figure(report, "State", [&](size_t run) { return report.runs[run].state; })};
  add_last_values(report, out);
  const auto add = [&](const char* name, const Value& value, std::string (*format)(double), int better = 0) {
    const auto text = [format](const RunFacts&, double number) { return format(number); };
    out.push_back(figure_of(report, name, value, text, better));
  };
  const auto whole = [](int64_t RunFacts::*member) {
    return [member](const RunFacts& facts) { return std::optional(static_cast<double>(facts.*member)); };
  };
  const auto bytes = [](double RunFacts::*member) {
    return [member](const RunFacts& facts) { return facts.*member > 0 ? std::optional(facts.*member) : std::nullopt; };
  };
  constexpr auto kPlain = [](double value) { return format_number(value); };
  add(
      "Examples per second", [](const RunFacts& facts) { return facts.examples_per_second; }, kPlain, 1);
  add(
      "Time of a step", [](const RunFacts& facts) { return facts.step_seconds; }, format_seconds, -1);
  add(
      "Time", [](const RunFacts& facts) { return std::optional(facts.seconds); }, format_duration);
  add("Steps", whole(&RunFacts::steps), kPlain);
  add("Epochs", whole(&RunFacts::epochs), kPlain);
  add("Replicas", whole(&RunFacts::replicas), kPlain);
  add("Workers", whole(&RunFacts::workers), kPlain);
  add("Memory of a process", bytes(&RunFacts::process_memory), format_bytes);
  add("Allocator's peak", bytes(&RunFacts::peak_memory), format_bytes);
  out.push_back(text_figure(report, "Slowest replica", [&](size_t run) {
    if (!report.facts[run].slowest || report.facts[run].replicas < 2) return std::string();
    const std::string percent = slowest_percent(report.facts[run]);
    return slowest_short(report.facts[run]) + (percent.empty() ? "" : ", " + percent);
  }));
  std::erase_if(out, [](const Figure& figure) {
    return std::all_of(figure.texts.begin(), figure.texts.end(), [](const auto& text) { return text.empty(); });
  });
  return out;
}

std::string cell(const Figure& figure, size_t run) {
  const std::string& text = figure.texts[run];
  return std::string("<td class=\"number") + (figure.is_best[run] ? " best" : "") + "\">" +
         (text.empty() ? "–" : escape_html(text)) + (figure.is_best[run] ? "<span> best</span>" : "") + "</td>";
}

std::string column_for_each_run(const Report& report, const std::vector<Figure>& figures) {
  std::string out =
      "<div class=\"wide\"><table class=\"figures\" style=\"min-width:" + std::to_string(11 + 8 * report.runs.size()) +
      "rem\"><thead><tr><td></td>";
  for (size_t run = 0; run < report.runs.size(); ++run) {
    out += "<th scope=\"col\">" + run_label(report, run) + "</th>";
  }
  out += "</tr></thead><tbody>";
  for (const Figure& figure : figures) {
    out += "<tr><th scope=\"row\">" + escape_html(figure.name) + "</th>";
    for (size_t run = 0; run < report.runs.size(); ++run) out += cell(figure, run);
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

/// Figures that are the same in all runs are told once.
std::string row_for_each_run(const Report& report, const std::vector<Figure>& figures) {
  std::string same;
  std::string head;
  std::vector<const Figure*> shown;
  for (const Figure& figure : figures) {
    const bool is_same = std::all_of(figure.texts.begin(), figure.texts.end(),
                                     [&](const std::string& text) { return text == figure.texts.front(); });
    if (is_same) {
      same += (same.empty() ? "" : "; ") + figure.name + " " + figure.texts.front();
      continue;
    }
    shown.push_back(&figure);
    head += "<th scope=\"col\" class=\"number\">" + escape_html(figure.name) + "</th>";
  }
  std::string out;
  if (!same.empty())
    out = "<p class=\"hint\">The same in all " + std::to_string(report.runs.size()) + " runs: " + escape_html(same) +
          ".</p>";
  out += "<div class=\"wide tall\" tabindex=\"0\"><table class=\"runs\"><thead><tr><th scope=\"col\">Run</th>" + head +
         "</tr></thead><tbody>";
  for (size_t run = 0; run < report.runs.size(); ++run) {
    out += "<tr><th scope=\"row\">" + run_label(report, run) + "</th>";
    for (const Figure* figure : shown) out += cell(*figure, run);
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

}  // namespace

std::string summary_table(const Report& report) {
  const std::vector<Figure> figures = all_figures(report);
  return has_many_runs(report) ? row_for_each_run(report, figures) : column_for_each_run(report, figures);
}

}  // namespace lockstep::tools::reports
