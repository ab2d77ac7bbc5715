#include "tools/report/report_sections.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "tools/report/chart_svg.h"
#include "tools/report/format_numbers.h"

namespace lockstep::tools::reports {
namespace {

std::string tile(const std::string& name, const std::string& value, const std::string& detail,
                 const std::string& style = "") {
  return "<div class=\"tile " + style + "\"><dt>" + escape_html(name) + "</dt><dd><b>" + escape_html(value) +
         "</b><span>" + escape_html(detail) + "</span></dd></div>";
}

/// The metric to show first: accuracy, else the first that is no loss.
std::string leading_metric(const RunFacts& facts) {
  std::string first;
  for (const auto& [name, value] : facts.last) {
    const std::string plain = name.starts_with("val_") ? name.substr(4) : name;
    if (plain == "loss" || plain == "lr" || plain == "learning_rate") continue;
    if (plain.find("accuracy") != std::string::npos) return plain;
    if (first.empty()) first = plain;
  }
  return first;
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return format_number(static_cast<double>(count)) + " " + (count == 1 ? one : many);
}

/// A tile of a value with that of validation: validation leads for metrics, training for the loss.
std::string value_tile(const RunFacts& facts, const std::string& name, const std::string& title) {
  const auto train = last_value(facts, name);
  const auto validation = last_value(facts, "val_" + name);
  if (!train && !validation) return "";
  if (validation) {
    return tile(title + ", validation", format_number(*validation), train ? "train " + format_number(*train) : "");
  }
  return tile(title, format_number(*train), "train, no validation");
}

/// `Mirrored`: all names end with Strategy.
std::string strategy_name(const RunData& run) {
  const auto found = run.identity.find("strategy");
  if (found == run.identity.end() || !found->is_object()) return "";
  const auto name = found->find("name");
  std::string text = name != found->end() && name->is_string() ? valid_text(name->get<std::string>()) : "";
  constexpr std::string_view kEnding = "Strategy";
  if (text.size() > kEnding.size() && text.ends_with(kEnding)) text.resize(text.size() - kEnding.size());
  return text;
}

/// The slowest worker, or replica where there is one worker.
std::string slowest_short(const RunFacts& facts) {
  if (!facts.slowest || facts.replicas < 2) return "–";
  if (!facts.slowest->is_straggler) return "none";
  return facts.workers > 1 ? "worker " + std::to_string(facts.slowest->worker)
                           : "replica " + std::to_string(facts.slowest->replica);
}

std::string slowest_percent(const RunFacts& facts) {
  if (!facts.slowest || !facts.slowest->is_straggler || facts.slowest->median <= 0) return "";
  const std::string replica = facts.workers > 1 ? "replica " + std::to_string(facts.slowest->replica) + ", " : "";
  return replica + "+" + format_number((facts.slowest->seconds / facts.slowest->median - 1) * 100, 2) + " % own work";
}

std::string summary_tiles(const RunData& run, const RunFacts& facts) {
  std::string out = "<dl class=\"tiles\">" + value_tile(facts, "loss", "Loss");
  const std::string metric = leading_metric(facts);
  if (!metric.empty()) {
    std::string title = metric;
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    out += value_tile(facts, metric, title);
  }
  if (facts.examples_per_second) {
    out += tile("Examples/s", format_number(*facts.examples_per_second),
                facts.step_seconds ? format_seconds(*facts.step_seconds) + " per step" : "");
  }
  out += tile("Time", format_duration(facts.seconds),
              counted(facts.steps, "step", "steps") + ", " + counted(facts.epochs, "epoch", "epochs"));
  if (facts.replicas > 0) {
    const std::string strategy = strategy_name(run);
    out += tile("Replicas", std::to_string(facts.replicas),
                counted(facts.workers, "worker", "workers") + (strategy.empty() ? "" : ", " + strategy));
  }
  if (facts.replicas > 1 && facts.slowest) {
    const bool is_slow = facts.slowest->is_straggler;
    out += tile("Slowest", slowest_short(facts), is_slow ? slowest_percent(facts) : "replicas are equally fast",
                is_slow ? "warn" : "");
  }
  if (facts.peak_memory > 0) out += tile("Peak memory", format_bytes(facts.peak_memory), "of one replica");
  return out + "</dl>";
}

/// A row of figures of all runs, with the best of those that can be compared.
struct FigureRow {
  std::string name;
  std::function<std::optional<double>(const RunFacts&)> value;
  std::string (*format)(double);
  /// -1: the smallest is best, 1: the largest, 0: none.
  int better = 0;
};

int better_direction(const std::string& name) {
  if (name.find("loss") != std::string::npos || name.find("error") != std::string::npos) return -1;
  for (const char* word : {"accuracy", "auc", "f1", "precision", "recall"}) {
    if (name.find(word) != std::string::npos) return 1;
  }
  return 0;
}

std::string figure_row(const Report& report, const FigureRow& row) {
  std::vector<std::optional<double>> values;
  for (const RunFacts& facts : report.facts) values.push_back(row.value(facts));
  std::optional<double> best;
  int known = 0;
  for (const auto& value : values) {
    if (!value || !std::isfinite(*value)) continue;
    ++known;
    if (!best || (*value - *best) * row.better > 0) best = value;
  }
  if (std::none_of(values.begin(), values.end(), [](const auto& value) { return value.has_value(); })) return "";
  std::string out = "<tr><th scope=\"row\">" + escape_html(row.name) + "</th>";
  for (const auto& value : values) {
    const bool is_best = row.better != 0 && known > 1 && value && best && *value == *best;
    out += std::string("<td class=\"number") + (is_best ? " best" : "") + "\">" +
           (value ? escape_html(row.format(*value)) : "–") + (is_best ? "<span> best</span>" : "") + "</td>";
  }
  return out + "</tr>";
}

std::string text_row(const Report& report, const std::string& name, const std::function<std::string(size_t)>& text) {
  std::string out = "<tr><th scope=\"row\">" + escape_html(name) + "</th>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    out += "<td class=\"number\">" + escape_html(text(index)) + "</td>";
  }
  return out + "</tr>";
}

std::string four_digits(double value) { return format_number(value); }

std::string summary_table(const Report& report) {
  std::string out =
      "<div class=\"wide\"><table class=\"figures\" style=\"min-width:" + std::to_string(11 + 8 * report.runs.size()) +
      "rem\"><thead><tr><td></td>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    out += "<th scope=\"col\">" + run_label(report, index) + "</th>";
  }
  out += "</tr></thead><tbody>" + text_row(report, "State", [&](size_t run) { return report.runs[run].state; });
  std::vector<std::string> names;
  for (const RunFacts& facts : report.facts) {
    for (const auto& [name, value] : facts.last) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    out += figure_row(report, {"Last " + name, [&](const RunFacts& facts) { return last_value(facts, name); },
                               four_digits, better_direction(name)});
  }
  const auto whole = [](int64_t RunFacts::*member) {
    return [member](const RunFacts& facts) { return std::optional(static_cast<double>(facts.*member)); };
  };
  out +=
      figure_row(report, {"Examples per second", [](const auto& f) { return f.examples_per_second; }, four_digits, 1});
  out += figure_row(report, {"Time of a step", [](const auto& f) { return f.step_seconds; }, format_seconds, -1});
  out += figure_row(report, {"Time", [](const auto& f) { return std::optional(f.seconds); }, format_duration, 0});
  out += figure_row(report, {"Steps", whole(&RunFacts::steps), four_digits, 0});
  out += figure_row(report, {"Epochs", whole(&RunFacts::epochs), four_digits, 0});
  out += figure_row(report, {"Replicas", whole(&RunFacts::replicas), four_digits, 0});
  out += figure_row(report, {"Workers", whole(&RunFacts::workers), four_digits, 0});
  out +=
      figure_row(report, {"Peak memory of a replica",
                          [](const auto& f) { return f.peak_memory > 0 ? std::optional(f.peak_memory) : std::nullopt; },
                          format_bytes, 0});
  out += text_row(report, "Slowest replica", [&](size_t run) {
    const std::string percent = slowest_percent(report.facts[run]);
    return slowest_short(report.facts[run]) + (percent.empty() ? "" : ", " + percent);
  });
  return out + "</tbody></table></div>";
}

}  // namespace

std::string run_label(const Report& report, size_t index, bool is_short) {
  if (report.runs.size() == 1) return "";
  const std::string colour = std::to_string(index % 8);
  std::string out = "<span class=\"key c" + colour + "\">" + run_key(index) + "</span>";
  if (!is_short) out += " <span class=\"run-name\">" + escape_html(report.runs[index].name) + "</span>";
  return out;
}

std::string run_legend(const Report& report) {
  if (report.runs.size() == 1) return "";
  std::string out = "<div class=\"legend\" role=\"group\" aria-label=\"Runs: show or hide\">";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const std::string number = std::to_string(index % 8);
    out += "<button type=\"button\" class=\"run-toggle\" aria-pressed=\"true\" data-run=\"" + std::to_string(index) +
           "\"><svg class=\"swatch\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><g class=\"series c" + number + " d" +
           std::to_string(dashes_of_run(index)) + "\"><path d=\"M0 4H28\"/></g></svg>" + run_label(report, index) +
           "</button>";
  }
  return out + "</div>";
}

std::string summary_section(const Report& report) {
  const std::string inside =
      report.runs.size() == 1 ? summary_tiles(report.runs[0], report.facts[0]) : summary_table(report);
  return "<section id=\"summary\" aria-label=\"Summary\">" + inside + notes_section(report) + "</section>";
}

std::string notes_section(const Report& report) {
  std::string out;
  for (const std::string& problem : report.problems) out += "<li>" + escape_html(problem) + "</li>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    for (const std::string& note : notes_of(report.runs[index], report.facts[index], report.now)) {
      out += "<li>" + run_label(report, index, true) + " " + escape_html(note) + "</li>";
    }
  }
  return out.empty() ? "" : "<ul class=\"notes\" aria-label=\"Notes\">" + out + "</ul>";
}

}  // namespace lockstep::tools::reports
