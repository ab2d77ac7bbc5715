#include "tools/doctor/doctor_summary.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep::tools {
namespace {

using Kind = RankPosition::Kind;
using Ranks = std::vector<const RankPosition*>;

template <typename Numbers>
std::string list(std::string_view one, std::string_view many, const Numbers& numbers) {
  std::ostringstream text;
  text << (numbers.size() == 1 ? one : many);
  const char* separator = " ";
  for (const int number : numbers) {
    text << separator << number;
    separator = ", ";
  }
  return text.str();
}

/// `worker 1 rank 3`, or `ranks 2, 3 (worker 1)`.
std::string name_of(const Ranks& ranks) {
  std::set<int> workers;
  std::set<int> numbers;
  for (const RankPosition* rank : ranks) {
    workers.insert(rank->worker);
    numbers.insert(rank->rank);
  }
  const std::string whose = list("worker", "workers", workers);
  if (ranks.size() == 1) return whose + " " + list("rank", "ranks", numbers);
  return list("rank", "ranks", numbers) + " (" + whose + ")";
}

template <typename Condition>
Ranks select(const GroupTrace& group, Condition condition) {
  Ranks result;
  for (const RankPosition& rank : group.ranks) {
    if (condition(rank)) result.push_back(&rank);
  }
  return result;
}

Ranks waiting(const GroupTrace& group) {
  return select(group, [](const RankPosition& rank) { return rank.kind == Kind::Waiting; });
}

std::string where(const GroupTrace& group) { return " of group " + group.name; }

std::string reason_of(const Diagnosis& diagnosis, int worker) {
  for (const WorkerDump& dump : diagnosis.dumps) {
    if (dump.worker == worker && !dump.reason.empty()) return ": " + dump.reason;
  }
  return "";
}

/// Where a worker waits in another group, which explains why it is behind in this one.
std::string other_wait(const Diagnosis& diagnosis, const GroupTrace& here, int worker) {
  for (const GroupTrace& group : diagnosis.groups) {
    if (&group == &here) continue;
    for (const RankPosition* rank : waiting(group)) {
      if (rank->worker == worker) return "its worker waits in " + name_of(*rank->call) + where(group);
    }
  }
  return "";
}

/// What to look at in a program that has made `last` and not `next`.
std::string between(const std::optional<RecordedCall>& last, const RecordedCall& next) {
  if (!last) return "look at what it does before" + (next.site.empty() ? " that" : " " + next.site);
  if (last->site.empty() || next.site.empty()) return "look at what it does between the two calls";
  return "look at what it does between " + last->site + " and " + next.site;
}

std::string behind_summary(const Diagnosis& diagnosis, const GroupTrace& group) {
  const Ranks behind = select(group, [](const RankPosition& rank) { return rank.behind; });
  if (behind.empty()) return "";
  const auto position = [](const RankPosition* rank) { return rank->call ? rank->call->sequence : -1; };
  const RankPosition& last =
      **std::min_element(behind.begin(), behind.end(), [&](auto* a, auto* b) { return position(a) < position(b); });
  const std::string who = name_of(
      select(group, [&](const auto& r) { return r.behind && r.kind == last.kind && position(&r) == position(&last); }));
  if (last.kind == Kind::Failed) {
    return who + " failed in " + name_of(*last.call) + reason_of(diagnosis, last.worker);
  }
  if (last.kind == Kind::Waiting) {
    return who + " never left " + name_of(*last.call) + where(group) + ", though others have gone on to call " +
           std::to_string(group.latest->sequence);
  }
  std::string summary = who + " never made " + name_of(*last.next) + where(group);
  if (const Ranks waits = waiting(group); !waits.empty()) summary += ", where " + name_of(waits) + " wait";
  summary += last.call ? "; it finished call " + std::to_string(last.call->sequence) : "; it made no call before";
  if (const std::string other = other_wait(diagnosis, group, last.worker); !other.empty())
    return summary + ", and " + other;
  return summary + " and was in no collective afterwards: " + between(last.call, *last.next);
}

std::string absence_summary(const Diagnosis& diagnosis) {
  if (diagnosis.missing_workers.empty()) return "";
  const std::string who = list("worker", "workers", diagnosis.missing_workers) + " left no file that can be used";
  for (const GroupTrace& group : diagnosis.groups) {
    const Ranks waits = waiting(group);
    if (waits.empty()) continue;
    return who + ", and " + name_of(waits) + " wait in " + name_of(*waits.front()->call) + where(group) +
           ": it has ended or hangs; look at its own log, or get its file by SIGUSR1";
  }
  return who + "; nobody waits for it as far as the other files tell";
}

std::string failure_summary(const Diagnosis& diagnosis, const GroupTrace& group) {
  const Ranks failed = select(group, [](const RankPosition& rank) { return rank.kind == Kind::Failed; });
  if (failed.empty()) return "";
  return name_of(failed) + " failed in " + name_of(*failed.front()->call) + where(group) +
         reason_of(diagnosis, failed.front()->worker);
}

std::string stuck_summary(const GroupTrace& group) {
  const Ranks waits = waiting(group);
  if (waits.empty()) return "";
  const std::string call = name_of(*waits.front()->call) + where(group);
  if (waits.size() == group.ranks.size()) {
    return "all ranks have come to " + call + " and none has left it: look at the connections between workers";
  }
  return name_of(waits) + " never left " + call +
         ", which others have finished: look at the connections between workers";
}

std::string first_problem(const Diagnosis& diagnosis) {
  const auto first = [&](auto tell) {
    for (const GroupTrace& group : diagnosis.groups) {
      if (std::string summary = tell(group); !summary.empty()) return summary;
    }
    return std::string();
  };
  // In this order: from causes to possible consequences.
  if (auto summary = first(describe_mismatch); !summary.empty()) return summary;
  if (auto summary = first([&](auto& group) { return behind_summary(diagnosis, group); }); !summary.empty())
    return summary;
  if (auto summary = absence_summary(diagnosis); !summary.empty()) return summary;
  if (auto summary = first([&](auto& group) { return failure_summary(diagnosis, group); }); !summary.empty())
    return summary;
  return first(stuck_summary);
}

}  // namespace

std::string name_of(const RecordedCall& call) {
  return "call " + std::to_string(call.sequence) + ", " + call.text + (call.site.empty() ? "" : " at " + call.site);
}

std::string describe_mismatch(const GroupTrace& group) {
  if (!group.mismatch) return "";
  std::ostringstream text;
  text << "call " << group.mismatch->sequence << " of group " << group.name << " is not the same for all: ";
  for (const Mismatch::Side& side : group.mismatch->sides) {
    text << list("rank", "ranks", side.ranks) << " made " << side.call.text;
    text << (side.call.site.empty() ? "" : " at " + side.call.site) << ", ";
  }
  text << "so look at where their ways part after call " << group.mismatch->sequence - 1;
  return text.str();
}

void summarize(Diagnosis& diagnosis) {
  const bool readable =
      std::any_of(diagnosis.dumps.begin(), diagnosis.dumps.end(), [](auto& d) { return d.worker >= 0; });
  diagnosis.summary = readable ? first_problem(diagnosis) : "none of the files can be used";
  diagnosis.in_step = diagnosis.summary.empty();
  if (diagnosis.in_step) diagnosis.summary = "all ranks have made the same calls and none waits";
}

}  // namespace lockstep::tools
