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
  return folded(title, "<div class=\"wide\"><table class=\"settings\"><tbody>" + rows + "</tbody></table></div>",
                is_open);
}

/// What an attempt has that is not as in the first one: the rest of its members.
std::string changed_members(const Entries& entries) {
  std::string out;
  for (const auto& [name, value] : entries) {
    const std::string member = name.substr(0, name.find('.'));
    bool is_shown = false;
    for (const char* known :
         {"started", "created", "ended", "state", "reason", "from_step", "host", "pid", "git", "command"}) {
      is_shown = is_shown || member == known;
    }
    if (!is_shown) out += (out.empty() ? "" : ", ") + name + " = " + value;
  }
  return out;
}

/// The times that a run was started, where it was more than once.
std::string attempts_table(const RunData& run) {
  const auto attempts = run.identity.find("attempts");
  if (attempts == run.identity.end() || !attempts->is_array() || attempts->size() < 2) return "";
  std::string rows;
  for (const Json& attempt : *attempts) {
    RunData one;
    one.identity = attempt.is_object() ? attempt : Json::object();
    const Entries all = flat_identity(one);
    const auto at = [&](const char* name) { return escape_html(value_of(all, name)); };
    const std::string began = at("started");
    rows += "<tr><td>" + (began.empty() ? at("created") : began) + "</td><td>" + at("ended") + "</td><td>" +
            escape_html(joined({value_of(all, "state"), value_of(all, "reason")})) + "</td><td class=\"number\">" +
            at("from_step") + "</td><td>" + at("host") + "</td><td>" + escape_html(git_text(all)) + "</td><td><code>" +
            at("command") + "</code></td><td>" + escape_html(changed_members(all)) + "</td></tr>";
  }
  std::string head;
  for (const char* name : {"Began", "Ended", "State", "From step", "Host", "Git", "Command", "Changed"}) {
    head += "<th scope=\"col\">" + std::string(name) + "</th>";
  }
  return folded("Attempts: the run was started " + std::to_string(attempts->size()) + " times",
                "<div class=\"wide\"><table class=\"attempts\"><thead><tr>" + head + "</tr></thead><tbody>" + rows +
                    "</tbody></table></div>",
                true);
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
      out += dot("p" + std::to_string(part_index(chart.series[part].role)), chart.series[part].role);
    }
    return out;
  }
  if (!has("train") && !has("validation")) return "";
  const bool single = num_runs == 1;
  const bool is_half = num_runs > kMarkedRuns && has("validation");
  if (has("train")) out += line(single ? "c0 d0" : is_half ? "plain half" : "plain", "train", single);
  if (has("validation")) out += line(single ? "c1 d1" : "plain", "validation", num_runs <= kMarkedRuns);
  if (has("interval")) out += line(single ? "c0 faint" : "plain faint", "single steps", false);
  return out;
}

}  // namespace

std::string chart_figures(const Report& report, const std::string& section) {
  std::string curves;
  std::string stacks;
  const StepRange range = step_range(report.charts);
  for (size_t index = 0; index < report.charts.size(); ++index) {
    const Chart& chart = report.charts[index];
    if (chart.section != section) continue;
    const bool is_stack = chart.kind == Chart::Kind::Stack;
    (is_stack ? stacks : curves) +=
        "<figure class=\"chart\" data-chart=\"" + std::to_string(index) + "\"><figcaption><h3>" +
        (is_stack ? run_label(report, chart.series.front().run, true) : "") + " " + escape_html(chart.title) +
        "</h3><span class=\"roles\">" + role_legend(chart, report.runs.size()) +
        "</span></figcaption><div class=\"plot\">" + draw_chart(chart, range, report.runs.size()) +
        "</div><p class=\"axis-name\">step</p></figure>";
  }
  const auto grid = [](const std::string& inside) {
    return inside.empty() ? "" : "<div class=\"charts\">" + inside + "</div>";
  };
  if (!has_many_runs(report)) return grid(curves + stacks);
  return grid(curves) + (stacks.empty() ? "" : folded("Time of a step over the run, for each run", grid(stacks)));
}

std::string identity_section(const Report& report) {
  std::string out =
      "<section id=\"runs\"><h2>" + std::string(report.runs.size() == 1 ? "The run" : "The runs") + "</h2>";
  for (size_t index = 0; index < report.runs.size(); ++index) {
    const RunData& run = report.runs[index];
    const Entries all = flat_identity(run);
    const std::string label = run_label(report, index);
    const std::string inside = who_and_what(run, all) + attempts_table(run) +
                               entries_table(all, "configuration", "Configuration", report.runs.size() == 1) +
                               entries_table(all, "environment", "Environment", false);
    if (has_many_runs(report)) {
      out += folded(label, inside);
    } else {
      out += "<article>" + (label.empty() ? "" : "<h3>" + label + "</h3>") + inside + "</article>";
    }
  }
  return out + "</section>";
}

namespace {

/// The cells of a setting: one for each run, or, where they are many, one with each value and the runs that have it.
std::string difference_cells(const Report& report, const Difference& entry) {
  const auto text_of = [](const std::string& value) {
    return value.empty() ? "–" : "<code>" + escape_html(value) + "</code>";
  };
  std::string out;
  if (!has_many_runs(report)) {
    for (const std::string& value : entry.values) out += "<td>" + text_of(value) + "</td>";
    return out;
  }
  std::vector<std::string> values;
  for (const std::string& value : entry.values) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  for (const std::string& value : values) {
    out += "<span class=\"of-runs\">" + text_of(value);
    for (size_t run = 0; run < entry.values.size(); ++run) {
      if (entry.values[run] == value) out += " " + run_label(report, run, true);
    }
    out += "</span> ";
  }
  return "<td>" + out + "</td>";
}

}  // namespace

std::string differences_section(const Report& report) {
  if (report.runs.size() < 2) return "";
  const std::vector<Difference> all = differences(report.runs);
  const std::string head = "<section id=\"differences\"><h2>Differences between the runs</h2>";
  if (all.empty()) return head + "<p>Versions, settings and environment are the same in all runs.</p></section>";
  std::string out = head + "<div class=\"wide\"><table class=\"settings\"><thead><tr><th scope=\"col\">Setting</th>";
  if (has_many_runs(report)) {
    out += "<th scope=\"col\">Values and their runs</th>";
  } else {
    for (size_t index = 0; index < report.runs.size(); ++index) {
      out += "<th scope=\"col\">" + run_label(report, index) + "</th>";
    }
  }
  out += "</tr></thead><tbody>";
  for (const Difference& entry : all) {
    out += "<tr><th scope=\"row\"><code>" + escape_html(entry.name) + "</code></th>" + difference_cells(report, entry) +
           "</tr>";
  }
  return out + "</tbody></table></div></section>";
}

}  // namespace lockstep::tools::reports
