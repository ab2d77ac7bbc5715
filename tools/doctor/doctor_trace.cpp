#include "tools/doctor/doctor_trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tools/doctor/doctor_summary.h"

namespace lockstep::tools {
namespace {

using Calls = std::vector<RecordedCall>;

/// The ranks of one group, from the files of all its workers.
struct Group {
  struct Rank {
    const WorkerDump* dump = nullptr;
    const Calls* calls = nullptr;
  };

  std::string name;
  std::map<int, Rank> ranks;
  /// Ranks that a worker has; 0 where the group is inside one worker.
  int ranks_per_worker = 0;
};

/// Leaves out answers to `lockstep doctor JOB` that nobody has removed: they are of another moment than dumps.
void drop_looks(std::vector<WorkerDump>& dumps) {
  const bool any = std::any_of(dumps.begin(), dumps.end(),
                               [](const WorkerDump& dump) { return dump.worker >= 0 && !dump.is_look(); });
  for (WorkerDump& dump : dumps) {
    if (!any || dump.worker < 0 || !dump.is_look()) continue;
    dump.damage.emplace_back("not used: it is an answer to `lockstep doctor JOB`, and other files are dumps");
    dump.worker = -1;
  }
}

/// Selects the latest file of each worker and notes which others are ignored.
void keep_latest(std::vector<WorkerDump>& dumps) {
  std::map<int, WorkerDump*> latest;
  for (WorkerDump& dump : dumps) {
    if (dump.worker < 0) continue;
    WorkerDump*& kept = latest[dump.worker];
    if (kept == nullptr) {
      kept = &dump;
      continue;
    }
    WorkerDump* older = dump.time < kept->time ? &dump : std::exchange(kept, &dump);
    older->damage.push_back("not used: " + kept->file + " is of the same worker");
    older->worker = -1;
  }
}

int num_workers(const std::vector<WorkerDump>& dumps) {
  int result = 0;
  for (const WorkerDump& dump : dumps) {
    if (dump.worker >= 0) result = std::max(result, dump.num_workers);
  }
  return result;
}

/// Whether ranks are numbered over all workers: worker w of k ranks each has w*k to w*k + k - 1.
bool is_job_wide(const std::vector<WorkerDump>& dumps, const std::string& name, int ranks_per_worker) {
  if (name == "local") return false;
  return std::all_of(dumps.begin(), dumps.end(), [&](const WorkerDump& dump) {
    const auto group = dump.groups.find(name);
    if (dump.worker < 0 || group == dump.groups.end()) return true;
    return std::all_of(group->second.begin(), group->second.end(),
                       [&](const auto& rank) { return rank.first / ranks_per_worker == dump.worker; });
  });
}

std::vector<Group> collect_groups(const std::vector<WorkerDump>& dumps) {
  std::map<std::string, int> sizes;  // ranks that a worker has, by group
  for (const WorkerDump& dump : dumps) {
    if (dump.worker < 0) continue;
    for (const auto& [name, ranks] : dump.groups) sizes[name] = std::max(sizes[name], static_cast<int>(ranks.size()));
  }
  std::vector<Group> groups;
  for (const auto& [name, size] : sizes) {
    const bool job_wide = is_job_wide(dumps, name, size);
    if (job_wide) groups.push_back({name, {}, size});
    for (const WorkerDump& dump : dumps) {
      const auto found = dump.groups.find(name);
      if (dump.worker < 0 || found == dump.groups.end()) continue;
      if (!job_wide) groups.push_back({name + " of worker " + std::to_string(dump.worker), {}, 0});
      for (const auto& [rank, calls] : found->second) groups.back().ranks[rank] = {&dump, &calls};
    }
  }
  return groups;
}

RankPosition locate(int rank, const Group::Rank& known) {
  RankPosition position;
  position.rank = rank;
  position.worker = known.dump->worker;
  position.kind = RankPosition::Kind::Outside;
  for (const RecordedCall& call : *known.calls) {
    if (call.state == CallState::Done) position.finished = std::max(position.finished, call.sequence);
    if (!position.call || call.sequence >= position.call->sequence) position.call = call;
  }
  if (!position.call) return position;
  if (position.call->state == CallState::Arrived) position.kind = RankPosition::Kind::Waiting;
  if (position.call->state == CallState::Failed) position.kind = RankPosition::Kind::Failed;
  const bool waits = position.kind == RankPosition::Kind::Waiting;
  const int64_t since = waits ? position.call->start_ns : position.call->end_ns;
  position.seconds = static_cast<double>(known.dump->newest_ns - since) * 1e-9;
  return position;
}

/// Returns the positions of all ranks of the group, with or without a file.
std::vector<RankPosition> positions(const Group& group, const std::vector<WorkerDump>& dumps) {
  const Calls none;
  std::vector<RankPosition> result;
  if (group.ranks_per_worker == 0) {
    for (const auto& [rank, known] : group.ranks) result.push_back(locate(rank, known));
    return result;
  }
  for (int rank = 0; rank < group.ranks_per_worker * num_workers(dumps); ++rank) {
    const int worker = rank / group.ranks_per_worker;
    const auto dump = std::find_if(dumps.begin(), dumps.end(), [&](const auto& d) { return d.worker == worker; });
    if (const auto known = group.ranks.find(rank); known != group.ranks.end()) {
      result.push_back(locate(rank, known->second));
    } else if (dump != dumps.end()) {
      result.push_back(locate(rank, {&*dump, &none}));
    } else {
      result.emplace_back();
      result.back().rank = rank;
      result.back().worker = worker;
    }
  }
  return result;
}

std::optional<Mismatch> find_mismatch(const Group& group) {
  std::map<int64_t, std::vector<Mismatch::Side>> sequences;
  for (const auto& [rank, known] : group.ranks) {
    for (const RecordedCall& call : *known.calls) {
      auto& sides = sequences[call.sequence];
      auto side = std::find_if(sides.begin(), sides.end(), [&](const auto& s) { return s.call.text == call.text; });
      if (side == sides.end()) side = sides.insert(side, {call, {}});
      side->ranks.push_back(rank);
    }
  }
  for (auto& [sequence, sides] : sequences) {
    if (sides.size() < 2) continue;
    std::stable_sort(sides.begin(), sides.end(), [](auto& a, auto& b) { return a.ranks.size() > b.ranks.size(); });
    return Mismatch{sequence, std::move(sides)};
  }
  return std::nullopt;
}

/// Returns the first recorded call of any rank after number `sequence`.
std::optional<RecordedCall> first_after(const Group& group, int64_t sequence) {
  std::optional<RecordedCall> result;
  for (const auto& [rank, known] : group.ranks) {
    for (const RecordedCall& call : *known.calls) {
      if (call.sequence > sequence && (!result || call.sequence < result->sequence)) result = call;
    }
  }
  return result;
}

GroupTrace trace(const Group& group, const std::vector<WorkerDump>& dumps) {
  GroupTrace result;
  result.name = group.name;
  result.ranks = positions(group, dumps);
  result.mismatch = find_mismatch(group);
  std::optional<int64_t> finished;
  for (const RankPosition& rank : result.ranks) {
    if (rank.kind == RankPosition::Kind::Unknown) continue;
    finished = std::min(finished.value_or(rank.finished), rank.finished);
    if (rank.call && (!result.latest || rank.call->sequence > result.latest->sequence)) result.latest = rank.call;
  }
  result.finished_by_all = finished.value_or(-1);
  for (RankPosition& rank : result.ranks) {
    const bool known = rank.kind != RankPosition::Kind::Unknown;
    rank.behind = known && result.latest && (!rank.call || rank.call->sequence < result.latest->sequence);
    if (rank.behind) rank.next = first_after(group, rank.call ? rank.call->sequence : -1);
  }
  return result;
}

}  // namespace

Diagnosis diagnose(std::vector<WorkerDump> dumps) {
  Diagnosis result;
  drop_looks(dumps);
  keep_latest(dumps);
  std::set<int> present;
  for (const WorkerDump& dump : dumps) present.insert(dump.worker);
  for (int worker = 0; worker < num_workers(dumps); ++worker) {
    if (present.count(worker) == 0) result.missing_workers.push_back(worker);
  }
  for (const Group& group : collect_groups(dumps)) result.groups.push_back(trace(group, dumps));
  result.dumps = std::move(dumps);
  summarize(result);
  return result;
}

}  // namespace lockstep::tools
