#include "lockstep/train/restore.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/load_plan.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/own_values.h"

namespace lockstep::detail {
namespace {

/// What a worker may find, as bits that workers combine.
constexpr uint8_t kDamaged = 1;
constexpr uint8_t kUnfitting = 2;
constexpr uint8_t kFailed = 4;

/// How a part of the restoring has ended here.
struct Finding {
  uint8_t bits = 0;
  std::string text;
};

Finding finding_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const DataError& error) {
    return {kDamaged, error.what_without_backtrace()};
  } catch (const c10::ValueError& error) {
    return {kUnfitting, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    return {kFailed, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {kFailed, error.what()};
  }
}

/// Returns whether all workers go on; throws where they cannot. False, with a text, for damage.
bool agree_on(const StrategyImpl& strategy, const Finding& mine, const RestoreSource& source, std::string& damage) {
  const auto any_worker = strategy.any_worker();
  const uint8_t bits = any_worker ? any_worker(mine.bits) : mine.bits;
  if (bits == 0) return true;
  const std::string text = mine.bits != 0 ? mine.text : "another worker could not read it";
  LOCKSTEP_CHECK_AS(c10::Error, (bits & kFailed) == 0, text, "; while restoring ", source.place);
  LOCKSTEP_CHECK_VALUE((bits & kUnfitting) == 0, text, "; while restoring ", source.place);
  damage = text;
  return false;
}

std::vector<int64_t> steps_of_first_worker(const StrategyImpl& strategy, const std::string& folder) {
  std::vector<int64_t> steps;
  const bool is_first = strategy.worker() == 0;
  const Finding listed = finding_of([&] {
    if (is_first) steps = list_checkpoints(folder);
  });
  const auto count = static_cast<int64_t>(strategy.of_first_worker(listed.bits == 0 ? steps.size() : ~uint64_t{0}));
  LOCKSTEP_CHECK_DATA(count >= 0, is_first ? listed.text : "the first worker cannot read the folder: " + folder);
  if (count == 0 || strategy.num_workers() == 1) return steps;
  steps.resize(static_cast<size_t>(count));
  const at::Tensor own = at::tensor(steps, at::kLong);
  const at::Tensor all = strategy.worker_group()->broadcast(own, 0).contiguous();
  std::copy_n(all.data_ptr<int64_t>(), count, steps.begin());
  return steps;
}

/// Returns those snapshots that all workers have, the newest first.
std::vector<MemorySnapshot> common_snapshots(const StrategyImpl& strategy, const std::string& memory_folder) {
  constexpr int64_t kCompared = 8;
  std::vector<MemorySnapshot> own;
  if (!memory_folder.empty()) own = MemorySnapshots::list(memory_folder);
  if (static_cast<int64_t>(own.size()) > kCompared) own.resize(kCompared);
  if (strategy.num_workers() == 1) return own;
  const at::Tensor mine = at::full({1, 2 * kCompared}, -1, at::device(at::kCPU).dtype(at::kLong));
  for (size_t i = 0; i < own.size(); ++i) {
    mine.data_ptr<int64_t>()[2 * i] = own[i].step;
    mine.data_ptr<int64_t>()[2 * i + 1] = static_cast<int64_t>(own[i].job);
  }
  const at::Tensor all = strategy.worker_group()->all_gather(mine, 0).contiguous();
  const int64_t* const values = all.data_ptr<int64_t>();
  std::map<std::pair<int64_t, int64_t>, int> holders;
  for (int64_t i = 0; i < strategy.num_workers() * kCompared; ++i) ++holders[{values[2 * i], values[2 * i + 1]}];
  std::erase_if(own, [&](const MemorySnapshot& snapshot) {
    return holders[{snapshot.step, static_cast<int64_t>(snapshot.job)}] < strategy.num_workers();
  });
  return own;
}

}  // namespace

RestoreSource source_on_disk(const std::string& folder, int64_t step) {
  const std::string path = folder + "/" + checkpoint_name(step);
  return {step, false, path, [path] { return OpenedState{open_checkpoint(path).state}; }};
}

std::vector<RestoreSource> restore_sources(const StrategyImpl& strategy, const std::string& folder,
                                           const std::string& memory_folder) {
  std::vector<RestoreSource> sources;
  for (const MemorySnapshot& snapshot : common_snapshots(strategy, memory_folder)) {
    sources.push_back({snapshot.step, true, c10::str("the snapshot of step ", snapshot.step, " in memory"),
                       [snapshot] { return MemorySnapshots::open(snapshot); }});
  }
  for (const int64_t step : steps_of_first_worker(strategy, folder)) {
    sources.push_back(source_on_disk(folder, step));
  }
  std::stable_sort(sources.begin(), sources.end(),
                   [](const RestoreSource& left, const RestoreSource& right) { return left.step > right.step; });
  return sources;
}

bool restore_from(const Checkpoint& checkpoint, const RestoreSource& source, std::string& damage) {
  const trace::Span span(trace::Phase::Checkpoint, "restore");
  const StrategyImpl& strategy = *checkpoint.strategy();
  OpenedState opened;
  std::vector<uint64_t> hashes;
  std::unique_ptr<LoadPlan> plan;
  progress::Task task(c10::str("restoring step ", source.step), {.unit = "bytes"});
  const Finding found = finding_of([&] {
    opened = source.open();
    if (source.in_memory && strategy.num_workers() > 1) hashes = hashes_of_own(opened);
  });
  if (!agree_on(strategy, found, source, damage)) return false;
  if (source.in_memory && strategy.num_workers() > 1) take_first_workers(*strategy.worker_group(), opened, hashes);
  const Finding planned = finding_of([&] {
    plan = std::make_unique<LoadPlan>(opened.state);
    checkpoint.plan_load(*plan);
    plan->check({});
  });
  if (!agree_on(strategy, planned, source, damage)) return false;
  const Finding read = finding_of([&] { plan->read(&task); });
  if (!agree_on(strategy, read, source, damage)) return false;
  const Finding finished = finding_of([&] { plan->finish(); });
  return agree_on(strategy, finished, source, damage);
}

std::vector<std::string> incomplete_checkpoints(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const bool is_one = step_of_name(i->path().filename().string()).has_value();
    if (is_one && !fs::exists(i->path() / "index.json")) found.push_back(i->path().string());
  }
  return found;
}

}  // namespace lockstep::detail
