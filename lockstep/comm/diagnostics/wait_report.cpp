#include "lockstep/comm/diagnostics/wait_report.h"

#include <algorithm>

#include <c10/util/StringUtil.h>

#include "lockstep/comm/job/frame.h"

namespace lockstep::comm {
namespace {

using Reports = std::span<const std::optional<WaitReport>>;
using Names = std::span<const std::string>;

/// A rank that waits, by its place in the reports.
struct Waiting {
  size_t worker = 0;
  const GroupReport* group = nullptr;
  size_t rank = 0;

  const RankReport& report() const { return group->ranks[rank]; }
};

struct Missing {
  size_t worker = 0;
  size_t rank = 0;
};

const GroupReport* find_group(const WaitReport& report, const std::string& name) {
  const auto found = std::find_if(report.groups.begin(), report.groups.end(),
                                  [&](const GroupReport& group) { return group.name == name; });
  return found == report.groups.end() ? nullptr : &*found;
}

std::vector<Waiting> waits_of(Reports reports, size_t worker) {
  std::vector<Waiting> waits;
  for (const GroupReport& group : reports[worker]->groups) {
    for (size_t rank = 0; rank < group.ranks.size(); ++rank) {
      if (group.ranks[rank].waits) waits.push_back({worker, &group, rank});
    }
  }
  return waits;
}

/// A rank of `worker` that has not arrived in the call that `waiting` is in.
std::optional<Missing> missing_in(Reports reports, const Waiting& waiting, size_t worker) {
  if (waiting.group->is_local && worker != waiting.worker) return std::nullopt;
  const GroupReport* theirs = find_group(*reports[worker], waiting.group->name);
  if (theirs == nullptr) return std::nullopt;  // it has not made the group yet, or has destroyed it
  for (size_t rank = 0; rank < theirs->ranks.size(); ++rank) {
    if (theirs->ranks[rank].call < waiting.report().call) return Missing{worker, rank};
  }
  return std::nullopt;
}

/// A rank of the workers in `set`, of other workers where possible, for which `waiting` waits.
std::optional<Missing> missing_in_set(Reports reports, const Waiting& waiting, const std::vector<bool>& set) {
  for (size_t worker = 0; worker < set.size(); ++worker) {
    if (!set[worker] || worker == waiting.worker) continue;
    if (const auto missing = missing_in(reports, waiting, worker)) return missing;
  }
  return missing_in(reports, waiting, waiting.worker);
}

/// The largest set of workers in which every wait is for a rank of the set.
std::vector<bool> workers_without_progress(Reports reports) {
  std::vector<bool> set(reports.size());
  for (size_t worker = 0; worker < set.size(); ++worker) set[worker] = reports[worker] && reports[worker]->all_wait;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t worker = 0; worker < set.size(); ++worker) {
      if (!set[worker]) continue;
      const auto waits = waits_of(reports, worker);
      const bool stays = !waits.empty() && std::all_of(waits.begin(), waits.end(), [&](const Waiting& waiting) {
        return missing_in_set(reports, waiting, set).has_value();
      });
      if (stays) continue;
      set[worker] = false;
      changed = true;
    }
  }
  return set;
}

std::string describe(const Waiting& waiting, Names names) {
  const GroupReport& group = *waiting.group;
  const size_t rank = group.is_local ? waiting.rank : waiting.worker * group.ranks.size() + waiting.rank;
  return c10::str(group.is_local ? "replica " : "rank ", rank, " of ", names[waiting.worker], " waits in ",
                  waiting.report().text, " (call ", waiting.report().call, ", group ", group.name, ")");
}

/// What the worker of a missing rank waits for: that rank's call, or another one.
Waiting wait_of(Reports reports, const Missing& missing, const Waiting& other) {
  const auto waits = waits_of(reports, missing.worker);
  const auto is_other = [&](const Waiting& each) { return each.worker == other.worker && each.group == other.group; };
  for (const Waiting& each : waits) {
    if (each.rank == missing.rank && !is_other(each)) return each;
  }
  for (const Waiting& each : waits) {
    if (!is_other(each)) return each;
  }
  return waits.front();
}

}  // namespace

std::string encode(const WaitReport& report) {
  job::FieldWriter writer;
  writer.number(report.all_wait ? 1 : 0).number(report.groups.size());
  for (const GroupReport& group : report.groups) {
    writer.text(group.name).number(group.is_local ? 1 : 0).number(group.run).number(group.ranks.size());
    for (const RankReport& rank : group.ranks) {
      writer.number(rank.call).number(rank.waits ? 1 : 0).number(rank.left_run).text(rank.text);
    }
  }
  const Pace pace = report.pace.value_or(Pace{});
  writer.number(pace.samples).number(pace.busy).number(pace.runs);
  return writer.take();
}

std::optional<WaitReport> decode_wait_report(std::string_view content) {
  try {
    job::FieldReader reader(content);
    WaitReport report;
    report.all_wait = reader.number_below(2) != 0;
    // Each group and each rank takes at least the eight bytes of one of its numbers.
    report.groups.resize(reader.number_below(content.size() / 8 + 1));
    for (GroupReport& group : report.groups) {
      group.name = reader.text();
      group.is_local = reader.number_below(2) != 0;
      group.run = reader.number();
      group.ranks.resize(reader.number_below(content.size() / 8 + 1));
      for (RankReport& rank : group.ranks) {
        rank.call = reader.number();
        rank.waits = reader.number_below(2) != 0;
        rank.left_run = reader.number();
        rank.text = reader.text();
      }
    }
    const uint64_t samples = reader.number();
    const uint64_t busy = reader.number();
    const uint64_t runs = reader.number();
    if (busy > samples) return std::nullopt;
    if (samples > 0) report.pace = Pace{samples, busy, runs};
    reader.finish();
    return report;
  } catch (const job::ProtocolError&) {
    return std::nullopt;
  }
}

std::string find_mutual_wait(Reports reports, Names names) {
  const std::vector<bool> set = workers_without_progress(reports);
  std::optional<Waiting> first;
  std::optional<Missing> missing;
  for (size_t worker = 0; worker < set.size(); ++worker) {
    if (!set[worker]) continue;
    for (const Waiting& waiting : waits_of(reports, worker)) {
      const auto other = missing_in_set(reports, waiting, set);
      const bool is_between_workers = other->worker != worker;
      if (first && !(is_between_workers && missing->worker == first->worker)) continue;
      first = waiting;
      missing = other;
    }
  }
  if (!first) return "";
  const Waiting second = wait_of(reports, *missing, *first);
  return c10::str("ranks wait for each other in different collectives: ", describe(*first, names), ", ",
                  describe(second, names));
}

std::string find_ended_run(Reports reports, int worker, Names names) {
  const auto own = static_cast<size_t>(worker);
  for (size_t other = 0; other < reports.size(); ++other) {
    if (other == own || !reports[other] || !reports[own]) continue;
    for (const Waiting& waiting : waits_of(reports, other)) {
      if (waiting.group->is_local || waiting.group->run == 0) continue;
      const GroupReport* mine = find_group(*reports[own], waiting.group->name);
      for (size_t rank = 0; mine != nullptr && rank < mine->ranks.size(); ++rank) {
        const RankReport& own_rank = mine->ranks[rank];
        if (own_rank.call >= waiting.report().call || own_rank.left_run < waiting.group->run) continue;
        const auto own_waits = waits_of(reports, own);
        return c10::str("rank ", own * mine->ranks.size() + rank, " of ", names[own], " has ended run ",
                        waiting.group->run, ", in which ", describe(waiting, names),
                        own_waits.empty() ? "" : "; " + describe(own_waits.front(), names));
      }
    }
  }
  return "";
}

}  // namespace lockstep::comm
