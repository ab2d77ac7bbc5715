#include "tools/report/report_page.h"

#include <cstdio>
#include <ctime>
#include <map>
#include <random>

#include "lockstep/version.h"
#include "tools/report/chart_svg.h"
#include "tools/report/report_assets.h"
#include "tools/report/report_sections.h"
#include "tools/runs/json_number.h"

namespace lockstep::tools::reports {
namespace {

/// Replaces `{{name}}` by its value, once: values are not searched.
std::string filled(const std::string& page, const std::map<std::string, std::string>& values) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t open = page.find("{{", at);
    const size_t close = open == std::string::npos ? open : page.find("}}", open);
    if (close == std::string::npos) return out + page.substr(at);
    out += page.substr(at, open - at) + values.at(page.substr(open + 2, close - open - 2));
    at = close + 2;
  }
}

/// JSON for the inside of a script element: no text of it can end the element.
std::string script_json(const Json& value) {
  std::string out;
  for (const char letter : value.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    switch (letter) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

/// A word that nobody can guess: scripts without it do not run.
std::string new_nonce() {
  std::random_device device;
  std::string out;
  for (int word = 0; word < 4; ++word) {
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "%08x", device());
    out += text.data();
  }
  return out;
}

std::string time_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

std::string page_title(const Report& report) {
  if (report.runs.size() == 1) return report.runs[0].name;
  return std::to_string(report.runs.size()) + " runs compared";
}

/// Links to the sections that the page has.
std::string navigation(const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string out;
  for (const auto& [id, title] : sections) out += "<a href=\"#" + id + "\">" + title + "</a>";
  return out;
}

std::string titled(const std::string& id, const std::string& title, const std::string& inside) {
  return inside.empty() ? "" : "<section id=\"" + id + "\"><h2>" + title + "</h2>" + inside + "</section>";
}

Json run_figures(const RunData& run, const RunFacts& facts) {
  const auto optional = [](const std::optional<double>& value) { return value ? json_number(*value) : Json(); };
  Json last = Json::object();
  for (const LastValue& entry : facts.last) last[entry.name] = json_number(entry.value);
  Json result{{"folder", valid_text(run.folder)},
              {"name", run.name},
              {"state", run.state},
              {"steps", facts.steps},
              {"epochs", facts.epochs},
              {"seconds", facts.seconds},
              {"last", last},
              {"examples_per_second", optional(facts.examples_per_second)},
              {"step_seconds", optional(facts.step_seconds)},
              {"parts", Json()},
              {"workers", facts.workers},
              {"replicas", facts.replicas},
              {"process_memory", facts.process_memory},
              {"peak_memory", facts.peak_memory},
              {"slowest", Json()},
              {"problems", run.problems}};
  if (facts.parts) {
    Json parts = Json::object();
    for (size_t part = 0; part < kPartNames.size(); ++part) parts[kPartNames[part]] = (*facts.parts)[part];
    result["parts"] = parts;
  }
  if (facts.slowest) {
    result["slowest"] = {{"worker", facts.slowest->worker},       {"replica", facts.slowest->replica},
                         {"host", facts.slowest->host},           {"device", facts.slowest->device},
                         {"own_seconds", facts.slowest->seconds}, {"median_seconds", facts.slowest->median},
                         {"phase", facts.slowest->phase},         {"is_straggler", facts.slowest->is_straggler}};
  }
  return result;
}

}  // namespace

std::string run_key(size_t index) {
  const std::string letter(1, static_cast<char>('A' + index % 26));
  return index < 26 ? letter : letter + std::to_string(index / 26 + 1);
}

Report make_report(const std::vector<std::string>& folders, std::vector<std::string> problems) {
  Report report;
  for (const std::string& folder : folders) {
    report.runs.push_back(read_run(folder));
    report.facts.push_back(facts_of(report.runs.back()));
    report.breaks.push_back(RunPositions(report.runs.back()).breaks());
    if (report.facts.back().parts) note_parts(*report.facts.back().parts, report.shown_parts);
  }
  report.charts = make_charts(report.runs);
  report.problems = std::move(problems);
  report.now = static_cast<double>(std::time(nullptr));
  return report;
}

Json figures(const Report& report) {
  Json runs = Json::array();
  for (size_t index = 0; index < report.runs.size(); ++index) {
    runs.push_back(run_figures(report.runs[index], report.facts[index]));
  }
  return {{"runs", std::move(runs)}, {"problems", report.problems}};
}

std::string render_page(const Report& report) {
  Json data = figures(report);
  data["charts"] = Json::array();
  for (const Chart& chart : report.charts) data["charts"].push_back(to_json(chart));
  data["breaks"] = Json::array();
  for (const auto& breaks : report.breaks) {
    Json entries = Json::array();
    for (const TimeBreak& entry : breaks) entries.push_back({{"at", entry.at}, {"seconds", entry.seconds}});
    data["breaks"].push_back(std::move(entries));
  }
  const std::string curves = titled("curves", "Curves", chart_figures(report, "curves") + epochs_section(report));
  const std::string speed = titled("speed", "Speed", parts_section(report) + chart_figures(report, "speed"));
  const std::string memory = titled("memory", "Memory", chart_figures(report, "memory"));
  const std::string replicas = replicas_section(report);
  const std::string collectives = collectives_section(report);
  const std::string changed = differences_section(report);
  std::vector<std::pair<std::string, std::string>> sections;
  if (!curves.empty()) sections.emplace_back("curves", "Curves");
  if (!speed.empty()) sections.emplace_back("speed", "Speed");
  if (!replicas.empty()) sections.emplace_back("replicas", "Replicas");
  if (!memory.empty()) sections.emplace_back("memory", "Memory");
  if (!collectives.empty()) sections.emplace_back("collectives", "Collectives");
  if (!changed.empty()) sections.emplace_back("differences", "Differences");
  sections.emplace_back("runs", report.runs.size() == 1 ? "Run" : "Runs");
  const std::string state = report.runs.size() == 1 ? report.runs[0].state : "";
  const std::string badge = state.empty() ? "" : "<span class=\"state\">" + escape_html(state) + "</span>";
  return filled(kReportHtml,
                {{"nonce", new_nonce()},
                 {"title", escape_html(page_title(report))},
                 {"badge", badge},
                 {"made", escape_html("lockstep " + std::string(version()) + ", " + time_text(report.now))},
                 {"navigation", navigation(sections)},
                 {"legend", run_legend(report)},
                 {"summary", summary_section(report)},
                 {"body", curves + speed + replicas + memory + collectives + changed + identity_section(report)},
                 {"css", kReportCss},
                 {"data", script_json(data)},
                 {"chart_js", kChartJs},
                 {"reading_js", kReadingJs},
                 {"report_js", kReportJs}});
}

}  // namespace lockstep::tools::reports
