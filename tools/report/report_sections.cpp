#include "tools/report/report_sections.h"

#include <algorithm>
#include <cctype>
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
  for (const LastValue& entry : facts.last) {
    const std::string& name = entry.name;
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

std::string epoch_of(const LastValue& entry) {
  return entry.epoch ? "epoch " + format_number(static_cast<double>(*entry.epoch)) : "";
}

/// A tile of a value with that of validation: validation leads for metrics, training for the loss.
std::string value_tile(const RunFacts& facts, const std::string& name, const std::string& title) {
  const LastValue* train = last_value(facts, name);
  const LastValue* validation = last_value(facts, "val_" + name);
  if (train == nullptr && validation == nullptr) return "";
  const LastValue& shown = validation != nullptr ? *validation : *train;
  std::string detail = epoch_of(shown);
  if (validation == nullptr) {
    detail += std::string(detail.empty() ? "" : ", ") + "train, no validation";
  } else if (train != nullptr) {
    detail += std::string(detail.empty() ? "" : "; ") + "train " + format_number(train->value);
    if (train->epoch != validation->epoch && train->epoch) detail += ", " + epoch_of(*train);
  }
  return tile(validation != nullptr ? title + ", validation" : title, format_number(shown.value), detail);
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
    out += tile("Slowest", slowest_short(facts),
                is_slow                    ? slowest_percent(facts)
                : facts.slowest->is_longer ? "none is slow all the time"
                                           : "replicas are equally fast",
                is_slow ? "warn" : "");
  }
  if (facts.process_memory > 0) {
    out += tile("Memory", format_bytes(facts.process_memory), facts.workers > 1 ? "largest process" : "of the process");
  }
  if (facts.peak_memory > 0) {
    out += tile("Peak memory", format_bytes(facts.peak_memory), "of the allocator, one replica");
  }
  return out + "</dl>";
}

}  // namespace

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
  if (has_many_runs(report)) {
    out +=
        "<button type=\"button\" class=\"needs-script\" data-all=\"1\">Show all</button>"
        "<button type=\"button\" class=\"needs-script\" data-all=\"0\">Hide all</button>";
  }
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const std::string number = std::to_string(index % 8);
    out += "<button type=\"button\" class=\"run-toggle\" aria-pressed=\"true\" data-run=\"" + std::to_string(index) +
           "\"><svg class=\"swatch\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><g class=\"series c" + number + " d" +
           std::to_string(dashes_of_run(index)) + "\"><path d=\"M0 4H28\"/></g></svg>" + run_label(report, index) +
           "</button>";
  }
  return out + "</div>";
}

std::string folded(const std::string& title, const std::string& inside, bool is_open) {
  return std::string("<details") + (is_open ? " open" : "") + "><summary>" + title + "</summary>" + inside +
         "</details>";
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
