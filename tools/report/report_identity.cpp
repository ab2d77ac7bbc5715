#include <algorithm>

#include "tools/report/chart_svg.h"
#include "tools/report/report_sections.h"

namespace lockstep::tools::reports {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string value_of(const Entries& entries, const std::string& name) {
  for (const auto& [key, value] : entries) {
    if (key == name) return value;
  }
  return "";
}

/// Several values in one line, with `between` where both are there.
std::string joined(std::initializer_list<std::string> parts, const std::string& between = ", ") {
  std::string out;
  for (const std::string& part : parts) {
    if (!part.empty()) out += (out.empty() ? "" : between) + part;
  }
  return out;
}

std::string prefixed(const std::string& word, const std::string& value) { return value.empty() ? "" : word + value; }

std::string git_text(const Entries& entries) {
  const std::string commit = value_of(entries, "git.commit");
  if (commit.empty()) return "";
  const bool is_dirty = value_of(entries, "git.dirty") == "true";
  return joined(
      {commit, prefixed("branch ", value_of(entries, "git.branch")), is_dirty ? "with changes" : "no changes"});
}

std::string definition(const std::string& name, const std::string& value, bool is_code = false) {
  if (value.empty()) return "";
  const std::string text = escape_html(value);
  return "<div><dt>" + name + "</dt><dd>" + (is_code ? "<code>" + text + "</code>" : text) + "</dd></div>";
}

std::string who_and_what(const RunData& run, const Entries& all) {
  const auto at = [&](const char* name) { return value_of(all, name); };
  return "<dl class=\"identity\">" + definition("State", joined({run.state, at("reason")})) +
         definition("Began", at("created")) + definition("Ended", at("ended")) +
         definition("Folder", valid_text(run.folder), true) + definition("Command", at("command"), true) +
         definition("Directory", at("working_directory"), true) +
         definition("Host", joined({at("host"), prefixed("user ", at("user")), prefixed("process ", at("pid"))})) +
         definition("Versions", joined({prefixed("lockstep ", at("lockstep")), prefixed("LibTorch ", at("libtorch")),
                                        at("compiler")})) +
         definition("Git", git_text(all)) + definition("Seed", at("seed")) +
         definition("Strategy", joined({at("strategy.name"), prefixed("workers: ", at("strategy.workers")),
                                        prefixed("replicas: ", at("strategy.replicas")), at("strategy.devices")})) +
         definition("Parameters", at("parameters")) +
         definition("Resumed", prefixed("from step ", at("resumed_from_step"))) + "</dl>";
}

/// A table of the entries below `prefix`.
std::string entries_table(const Entries& entries, const std::string& prefix, const std::string& title, bool is_open) {
  std::string rows;
  for (const auto& [name, value] : entries) {
    if (!name.starts_with(prefix + ".")) continue;
    rows += "<tr><th scope=\"row\"><code>" + escape_html(name.substr(prefix.size() + 1)) + "</code></th><td><code>" +
            escape_html(value) + "</code></td></tr>";
  }
  if (rows.empty()) return "";
  return std::string("<details") + (is_open ? " open" : "") + "><summary>" + title +
         "</summary><div class=\"wide\"><table class=\"settings\"><tbody>" + rows + "</tbody></table></div></details>";
}

std::string dot(const std::string& style, const std::string& name) {
  return "<span class=\"role\"><i class=\"dot " + style + "\"></i>" + name + "</span>";
}

/// What lines and colours of one chart mean.
std::string role_legend(const Chart& chart, size_t num_runs) {
  const auto has = [&](const std::string& role) {
    return std::any_of(chart.series.begin(), chart.series.end(), [&](const auto& s) { return s.role == role; });
  };
  const auto line = [](const std::string& style, const std::string& name, bool has_mark) {
    return "<span class=\"role\"><svg class=\"swatch\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><g class=\"series " +
           style + "\"><path d=\"M0 4H28\"/>" + (has_mark ? "<circle cx=\"14\" cy=\"4\" r=\"2.5\"/>" : "") +
           "</g></svg>" + name + "</span>";
  };
  std::string out;
  if (chart.kind == Chart::Kind::Stack) {
    for (size_t part = 0; part < chart.series.size(); ++part) {
      out += dot("p" + std::to_string(part), chart.series[part].role);
    }
    return out;
  }
  if (!has("train") && !has("validation")) return "";
  const bool single = num_runs == 1;
  if (has("train")) out += line(single ? "c0 d0" : "plain", "train", single);
  if (has("validation")) out += line(single ? "c1 d1" : "plain", "validation", true);
  if (has("interval")) out += line(single ? "c0 faint" : "plain faint", "single steps", false);
  return out;
}

}  // namespace

std::string chart_figures(const Report& report, const std::string& section) {
  std::string out;
  const StepRange range = step_range(report.charts);
  for (size_t index = 0; index < report.charts.size(); ++index) {
    const Chart& chart = report.charts[index];
    if (chart.section != section) continue;
    const bool is_stack = chart.kind == Chart::Kind::Stack;
    out += "<figure class=\"chart\" data-chart=\"" + std::to_string(index) + "\"><figcaption><h3>" +
           (is_stack ? run_label(report, chart.series.front().run, true) : "") + " " + escape_html(chart.title) +
           "</h3><span class=\"roles\">" + role_legend(chart, report.runs.size()) +
           "</span></figcaption><div class=\"plot\">" + draw_chart(chart, range, report.runs.size()) +
           "</div><p class=\"axis-name\">step</p></figure>";
  }
  return out.empty() ? "" : "<div class=\"charts\">" + out + "</div>";
}

std::string identity_section(const Report& report) {
  std::string out =
      "<section id=\"runs\"><h2>" + std::string(report.runs.size() == 1 ? "The run" : "The runs") + "</h2>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const Entries all = flat_identity(report.runs[index]);
    const std::string label = run_label(report, index);
    out += "<article>" + (label.empty() ? "" : "<h3>" + label + "</h3>") + who_and_what(report.runs[index], all) +
           entries_table(all, "configuration", "Configuration", report.runs.size() == 1) +
           entries_table(all, "environment", "Environment", false) + "</article>";
  }
  return out + "</section>";
}

std::string differences_section(const Report& report) {
  if (report.runs.size() < 2) return "";
  const std::vector<Difference> all = differences(report.runs);
  const std::string head = "<section id=\"differences\"><h2>Differences between the runs</h2>";
  if (all.empty()) return head + "<p>Versions, settings and environment are the same in all runs.</p></section>";
  std::string out = head + "<div class=\"wide\"><table class=\"settings\"><thead><tr><th scope=\"col\">Setting</th>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    out += "<th scope=\"col\">" + run_label(report, index) + "</th>";
  }
  out += "</tr></thead><tbody>";
  for (const Difference& entry : all) {
    out += "<tr><th scope=\"row\"><code>" + escape_html(entry.name) + "</code></th>";
    for (const std::string& value : entry.values) {
      out += "<td>" + (value.empty() ? "–" : "<code>" + escape_html(value) + "</code>") + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div></section>";
}

}  // namespace lockstep::tools::reports
