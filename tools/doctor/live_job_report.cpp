#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/live_job.h"

namespace lockstep::tools {
namespace {

std::string not_asked_text(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 8;
  std::string text = "not asked: ";
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text + ": on other machines, or apart from JOB; call `lockstep doctor` on each machine";
}

std::string rate_text(const LiveWorker& worker) {
  std::ostringstream text;
  text << std::setprecision(3);
  if (worker.rate) text << (worker.step >= 0 ? ", " : ", runs: ") << *worker.rate << " a second";
  if (worker.average_rate) text << " (" << *worker.average_rate << " since the first)";
  return text.str();
}

}  // namespace

Json to_json(const LiveJob& job) {
  const auto number = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json workers = Json::array();
  for (const LiveWorker& worker : job.workers) {
    Json row{{"name", worker.name}, {"pid", worker.pid}, {"answers", worker.answers}};
    if (worker.answers) {
      row["worker"] = worker.worker;
      row["host"] = worker.host;
      row["step"] = worker.step >= 0 ? Json(worker.step) : Json(nullptr);
      row["runs"] = worker.runs;
      row["rate"] = number(worker.rate);
      row["average_rate"] = number(worker.average_rate);
      row["busy"] = worker.busy >= 0 ? Json(worker.busy) : Json(nullptr);
      if (!worker.busy_unknown.empty()) row["busy_unknown"] = worker.busy_unknown;
      row["waits"] = worker.waits;
    }
    row["where"] = worker.where;
    workers.push_back(std::move(row));
  }
  return {{"workers", std::move(workers)}, {"not_asked", job.not_asked}, {"summary", job.summary}};
}

void print_live_job(const LiveJob& job, std::ostream& out) {
  for (const LiveWorker& worker : job.workers) {
    out << worker.name << ", process " << worker.pid;
    if (!worker.answers) {
      out << ": does not answer: " << worker.where << '\n';
      continue;
    }
    out << " on " << worker.host << ": ";
    if (worker.step >= 0) {
      out << "step " << worker.step;
    } else {
      out << "run " << worker.runs;
    }
    out << rate_text(worker);
    if (worker.busy >= 0) {
      std::ostringstream share;
      share << std::fixed << std::setprecision(0) << 100 * worker.busy << " % of the last " << worker.busy_seconds;
      out << ", busy " << share.str() << " s";
    }
    if (!worker.busy_unknown.empty()) out << ", busy: not measured (" << worker.busy_unknown << ")";
    out << "\n  " << worker.where << '\n';
  }
  if (!job.not_asked.empty()) out << not_asked_text(job.not_asked) << '\n';
  out << job.summary << '\n';
}

}  // namespace lockstep::tools
