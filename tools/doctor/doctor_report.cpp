#include "tools/doctor/doctor_report.h"

#include <ostream>
#include <sstream>
#include <string>

#include "tools/doctor/doctor_summary.h"

namespace lockstep::tools {
namespace {

using Kind = RankPosition::Kind;

std::string describe(const RankPosition& rank) {
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << "worker " << rank.worker << " rank " << rank.rank << ": ";
  if (rank.kind == Kind::Unknown) {
    text << "no file";
  } else if (!rank.call) {
    text << "no call";
  } else if (rank.kind == Kind::Waiting) {
    text << "waits in " << name_of(*rank.call) << ", for " << rank.seconds << " s";
  } else if (rank.kind == Kind::Failed) {
    text << "failed in " << name_of(*rank.call) << ", " << rank.seconds << " s ago";
  } else {
    text << "finished " << name_of(*rank.call) << ", " << rank.seconds << " s ago";
  }
  if (rank.behind) text << "; behind: has not made call " << rank.next->sequence;
  return text.str();
}

Json to_json(const RankPosition& rank) {
  static constexpr const char* kNames[] = {"unknown", "outside", "waiting", "failed"};
  Json result{{"rank", rank.rank}, {"worker", rank.worker}, {"state", kNames[static_cast<int>(rank.kind)]}};
  if (rank.call) {
    result["sequence"] = rank.call->sequence;
    result["call"] = rank.call->text;
    if (!rank.call->site.empty()) result["site"] = rank.call->site;
    result["seconds"] = rank.seconds;
  }
  result["behind"] = rank.behind;
  return result;
}

Json to_json(const GroupTrace& group) {
  Json result{{"group", group.name}, {"finished_by_all", nullptr}};
  if (group.finished_by_all >= 0) result["finished_by_all"] = group.finished_by_all;
  result["ranks"] = Json::array();
  for (const RankPosition& rank : group.ranks) result["ranks"].push_back(to_json(rank));
  result["mismatch"] = nullptr;
  if (!group.mismatch) return result;
  result["mismatch"] = {{"sequence", group.mismatch->sequence}, {"calls", Json::array()}};
  for (const Mismatch::Side& side : group.mismatch->sides) {
    Json call{{"call", side.call.text}, {"ranks", side.ranks}};
    if (!side.call.site.empty()) call["site"] = side.call.site;
    result["mismatch"]["calls"].push_back(call);
  }
  return result;
}

}  // namespace

void print(const Diagnosis& diagnosis, std::ostream& out) {
  for (const WorkerDump& dump : diagnosis.dumps) {
    out << dump.file << ": ";
    if (dump.worker >= 0) {
      out << "worker " << dump.worker << " of " << dump.num_workers << ", host " << dump.host << ", pid " << dump.pid
          << ", " << dump.time << ", because of " << dump.reason;
    } else {
      out << "not used";
    }
    out << '\n';
    for (const std::string& damage : dump.damage) out << "  " << damage << '\n';
  }
  for (const int worker : diagnosis.missing_workers) out << "worker " << worker << ": no file\n";
  for (const GroupTrace& group : diagnosis.groups) {
    out << "group " << group.name << ": ";
    if (group.finished_by_all >= 0) {
      out << "all ranks with a file have finished call " << group.finished_by_all << '\n';
    } else {
      out << "no call that all ranks with a file have finished\n";
    }
    for (const RankPosition& rank : group.ranks) out << "  " << describe(rank) << '\n';
    if (group.mismatch) out << "  " << describe_mismatch(group) << '\n';
  }
  out << (diagnosis.in_step ? "in step: " : "out of step: ") << diagnosis.summary << '\n';
}

Json to_json(const Diagnosis& diagnosis) {
  Json result{{"files", Json::array()}, {"missing_workers", diagnosis.missing_workers}};
  for (const WorkerDump& dump : diagnosis.dumps) {
    result["files"].push_back({{"file", dump.file},
                               {"worker", dump.worker < 0 ? Json() : Json(dump.worker)},
                               {"host", dump.host},
                               {"reason", dump.reason},
                               {"damage", dump.damage}});
  }
  result["groups"] = Json::array();
  for (const GroupTrace& group : diagnosis.groups) result["groups"].push_back(to_json(group));
  result["in_step"] = diagnosis.in_step;
  result["story"] = diagnosis.summary;
  return result;
}

}  // namespace lockstep::tools
