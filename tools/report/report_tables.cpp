#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/report/chart_svg.h"
#include "tools/report/format_numbers.h"
#include "tools/report/report_sections.h"

namespace lockstep::tools::reports {
namespace {

constexpr size_t kShownReplicas = 64;
constexpr size_t kShownCalls = 25;
constexpr size_t kShownEpochs = 200;

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f%%", share * 100);
  return text.data();
}

/// A bar of the parts of a step; all of `longest` seconds is the whole width.
std::string stacked_bar(const StepParts& parts, double longest) {
  std::string out = "<div class=\"bar\" aria-hidden=\"true\">";
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part] <= 0 || longest <= 0) continue;
    out += "<i class=\"p" + std::to_string(part) + "\" style=\"width:" + percent_text(parts[part] / longest) +
           "\" title=\"" + kPartNames[part] + " " + escape_html(format_seconds(parts[part])) + "\"></i>";
  }
  return out + "</div>";
}

double sum_of(const StepParts& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

using ShownParts = std::array<bool, kPartNames.size()>;

std::string parts_head(const ShownParts& shown) {
  std::string out;
  for (size_t part = 0; part < kPartNames.size(); ++part) {
    if (!shown[part]) continue;
    out += "<th scope=\"col\" class=\"number\"><i class=\"dot p" + std::to_string(part) + "\"></i>" + kPartNames[part] +
           "</th>";
  }
  return out;
}

std::string parts_cells(const StepParts& parts, const ShownParts& shown) {
  std::string out;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (shown[part]) out += "<td class=\"number\">" + escape_html(format_seconds(parts[part])) + "</td>";
  }
  return out;
}

std::string replica_name(const ReplicaTotals& replica, bool has_workers) {
  std::string out = "replica " + std::to_string(replica.replica);
  if (has_workers) out = "worker " + std::to_string(replica.worker) + ", " + out;
  return out;
}

std::string replica_row(const ReplicaTotals& replica, const RunFacts& facts, const ShownParts& shown, double longest) {
  const StepParts parts = merge_parts(parts_of_step(replica.phases, replica.seconds, replica.steps), shown);
  const bool is_slow = facts.slowest && facts.slowest->is_straggler && facts.slowest->worker == replica.worker &&
                       facts.slowest->replica == replica.replica;
  std::string times;
  if (facts.slowest) {
    times = "<td>" + stacked_bar(parts, longest) + "</td><td class=\"number strong\">" +
            escape_html(format_seconds(own_seconds(replica))) + "</td>" + parts_cells(parts, shown);
  }
  const double memory = facts.peak_memory > 0 ? replica.peak_memory : replica.process_memory;
  return std::string("<tr") + (is_slow ? " class=\"slow\"" : "") + "><th scope=\"row\">" +
         escape_html(replica_name(replica, facts.workers > 1)) + (is_slow ? " <em>slowest</em>" : "") + "<span>" +
         escape_html(replica.host + (replica.host.empty() ? "" : " ") + replica.device) + "</span></th>" + times +
         "<td class=\"number\">" + (memory > 0 ? escape_html(format_bytes(memory)) : "–") + "</td></tr>";
}

/// The names of the columns; none of times where no phases were recorded.
std::string replica_head(const RunFacts& facts, const ShownParts& shown) {
  const std::string times =
      "<th scope=\"col\" class=\"bar-cell\">Time of a step</th><th scope=\"col\" class=\"number\">Own work</th>" +
      parts_head(shown);
  return "<thead><tr><th scope=\"col\">Replica</th>" + (facts.slowest ? times : "") +
         "<th scope=\"col\" class=\"number\">" +
         (facts.peak_memory > 0 ? "Allocator's peak" : "Memory of its process") + "</th></tr></thead>";
}

std::string replica_table(const RunData& run, const RunFacts& facts, const ShownParts& parts) {
  std::vector<const ReplicaTotals*> shown;
  double longest = 0;
  for (const auto& [key, replica] : run.replicas) {
    shown.push_back(&replica);
    longest = std::max(longest, sum_of(parts_of_step(replica.phases, replica.seconds, replica.steps)));
  }
  std::string caption;
  if (shown.size() > kShownReplicas) {
    std::stable_sort(shown.begin(), shown.end(),
                     [](const auto* a, const auto* b) { return own_seconds(*a) > own_seconds(*b); });
    shown.resize(kShownReplicas);
    caption = "<p>Of " + std::to_string(run.replicas.size()) + " replicas the " + std::to_string(kShownReplicas) +
              " with the most own work per step.</p>";
  }
  const std::string style = shown.size() > 16 ? "bars compact" : "bars";
  std::string out =
      caption + "<div class=\"wide\"><table class=\"" + style + "\">" + replica_head(facts, parts) + "<tbody>";
  for (const ReplicaTotals* replica : shown) out += replica_row(*replica, facts, parts, longest);
  return out + "</tbody></table></div>";
}

std::string call_state(const CollectiveCall& call) {
  if (call.failed > 0) return "failed";
  if (call.waiting > 0) return std::to_string(call.waiting) + " waiting";
  return "done";
}

std::string calls_table(const RunData& run) {
  std::string out =
      "<div class=\"wide\"><table><thead><tr><th scope=\"col\" class=\"number\">Number</th><th scope=\"col\">Call</th>"
      "<th scope=\"col\">Where</th><th scope=\"col\">Group</th><th scope=\"col\" class=\"number\">Bytes</th>"
      "<th scope=\"col\" class=\"number\">Ranks</th><th scope=\"col\" class=\"number\">Arrived within</th>"
      "<th scope=\"col\" class=\"number\">Longest</th><th scope=\"col\">State</th></tr></thead><tbody>";
  const size_t begin = run.collectives.size() > kShownCalls ? run.collectives.size() - kShownCalls : 0;
  for (size_t index = begin; index < run.collectives.size(); ++index) {
    const CollectiveCall& call = run.collectives[index];
    const double apart = static_cast<double>(call.last_start_ns - call.first_start_ns) * 1e-9;
    const bool is_bad = call.failed > 0 || call.waiting > 0;
    out += std::string("<tr") + (is_bad ? " class=\"slow\"" : "") + "><td class=\"number\">" +
           std::to_string(call.sequence) + "</td><td><code>" + escape_html(call.text) + "</code></td><td><code>" +
           escape_html(call.site) + "</code></td><td>" + escape_html(call.group) + "</td><td class=\"number\">" +
           escape_html(format_bytes(call.bytes)) + "</td><td class=\"number\">" + std::to_string(call.ranks) +
           "</td><td class=\"number\">" + escape_html(call.ranks > 1 ? format_seconds(apart) : "–") +
           "</td><td class=\"number\">" + (call.seconds > 0 ? escape_html(format_seconds(call.seconds)) : "–") +
           "</td><td>" + call_state(call) + "</td></tr>";
  }
  return out + "</tbody></table></div>";
}

/// Every how many epochs one is shown.
size_t epoch_stride(const RunData& run) { return (run.epochs.size() + kShownEpochs - 1) / kShownEpochs; }

std::string epochs_table(const RunData& run) {
  std::vector<std::string> names;
  for (const EpochRecord& epoch : run.epochs) {
    for (const auto& [name, value] : epoch.values) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string out =
      "<div class=\"wide\"><table><thead><tr><th scope=\"col\" class=\"number\">Epoch</th><th scope=\"col\" "
      "class=\"number\">Step</th><th scope=\"col\" class=\"number\">Time</th>";
  for (const std::string& name : names) out += "<th scope=\"col\" class=\"number\">" + escape_html(name) + "</th>";
  out += "</tr></thead><tbody>";
  const size_t stride = epoch_stride(run);
  for (size_t index = 0; index < run.epochs.size(); ++index) {
    if (index % stride != 0 && index + 1 != run.epochs.size()) continue;
    const EpochRecord& epoch = run.epochs[index];
    out += "<tr><th scope=\"row\" class=\"number\">" + std::to_string(epoch.epoch + 1) + "</th><td class=\"number\">" +
           std::to_string(epoch.step) + "</td><td class=\"number\">" + escape_html(format_duration(epoch.seconds)) +
           "</td>";
    for (const std::string& name : names) {
      const auto found = std::find_if(epoch.values.begin(), epoch.values.end(),
                                      [&](const auto& value) { return value.first == name; });
      out += "<td class=\"number\">" +
             (found == epoch.values.end() ? "–" : escape_html(format_number(found->second, 5))) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

/// What one run has for itself: below a heading, or folded where there are many.
std::string part_of_run(const Report& report, size_t index, const std::string& inside) {
  const std::string label = run_label(report, index);
  if (has_many_runs(report)) return folded(label, inside);
  return (label.empty() ? "" : "<h3>" + label + "</h3>") + inside;
}

std::string ordinal(size_t number) {
  const size_t last = number % 10;
  const bool is_teen = number % 100 / 10 == 1;
  const char* ending = is_teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd";
  return std::to_string(number) + ending;
}

}  // namespace

std::string parts_section(const Report& report) {
  std::string rows;
  double longest = 0;
  for (const RunFacts& facts : report.facts) {
    if (facts.parts) longest = std::max(longest, sum_of(*facts.parts));
  }
  for (size_t index = 0; index < report.runs.size(); ++index) {
    if (!report.facts[index].parts) continue;
    const StepParts parts = merge_parts(*report.facts[index].parts, report.shown_parts);
    const std::string label = report.runs.size() == 1 ? "mean of all replicas" : run_label(report, index);
    rows += "<tr><th scope=\"row\">" + label + "</th><td>" + stacked_bar(parts, longest) +
            "</td><td class=\"number strong\">" + escape_html(format_seconds(sum_of(parts))) + "</td>" +
            parts_cells(parts, report.shown_parts) + "</tr>";
  }
  if (rows.empty()) return "";
  return "<h3>Where the time of a step goes</h3><div class=\"wide" +
         std::string(has_many_runs(report) ? " tall\" tabindex=\"0" : "") +
         "\"><table class=\"bars\"><thead><tr><th scope=\"col\"></th><th scope=\"col\" class=\"bar-cell\"></th><th "
         "scope=\"col\" class=\"number\">Step</th>" +
         parts_head(report.shown_parts) + "</tr></thead><tbody>" + rows +
         "</tbody></table></div><p class=\"hint\">Compute is forward and backward. Other is time that belongs to no "
         "phase, and checkpoints and compiling where they take less than 1 %.</p>";
}

std::string replicas_section(const Report& report) {
  std::string inside;
  size_t alone = 0;
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const RunData& run = report.runs[index];
    if (run.replicas.size() == 1) ++alone;
    if (run.replicas.empty() || (has_many_runs(report) && run.replicas.size() == 1)) continue;
    const RunFacts& facts = report.facts[index];
    const bool is_slow = facts.slowest && facts.slowest->is_straggler;
    inside +=
        part_of_run(report, index,
                    "<p class=\"verdict" + std::string(is_slow ? " warn" : "") + "\">" +
                        escape_html(facts.slowest_words) + "</p>" + replica_table(run, facts, report.shown_parts));
  }
  if (has_many_runs(report) && alone > 0) {
    inside = "<p class=\"hint\">" + std::to_string(alone) + (alone == 1 ? " run has" : " runs have") +
             " one replica: there is nothing to compare.</p>" + inside;
  }
  return inside.empty() ? "" : "<section id=\"replicas\"><h2>Replicas and workers</h2>" + inside + "</section>";
}

std::string collectives_section(const Report& report) {
  std::string inside;
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const RunData& run = report.runs[index];
    if (run.collectives.empty()) continue;
    const std::string shown = std::to_string(std::min(kShownCalls, run.collectives.size()));
    inside += part_of_run(
        report, index,
        "<p class=\"hint\">The last " + shown + " of " + std::to_string(run.collectives.size()) +
            " recorded calls of the chief" +
            (run.collectives_reason.empty() ? "" : ", written because of: " + escape_html(run.collectives_reason)) +
            ".</p>" + calls_table(run));
  }
  return inside.empty() ? "" : "<section id=\"collectives\"><h2>Last collectives</h2>" + inside + "</section>";
}

std::string epochs_section(const Report& report) {
  std::string inside;
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const RunData& run = report.runs[index];
    if (run.epochs.empty()) continue;
    const size_t count = run.epochs.size();
    const size_t stride = epoch_stride(run);
    inside += folded(run_label(report, index) + (report.runs.size() == 1 ? "Numbers of " : ": numbers of ") +
                         (stride > 1 ? "every " + ordinal(stride) + " of " : "") + std::to_string(count) +
                         (count == 1 ? " epoch" : " epochs"),
                     epochs_table(run));
  }
  return inside.empty() || !has_many_runs(report) ? inside : folded("Numbers of epochs, for each run", inside);
}

}  // namespace lockstep::tools::reports
