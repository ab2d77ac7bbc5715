#include "lockstep/strategy/optimizer/module_writes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/diagnostics/worker_error.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

/// Workers that are later than this compare without those that came first, which are told by the failure of the job.
constexpr std::chrono::milliseconds kPatienceWithWorkers{2000};
/// Hashes that are sent one by one; those of all further parameters are sent as one.
constexpr size_t kSentHashes = 1000;

std::string as_bytes(std::vector<uint64_t> hashes) {
  while (hashes.size() > kSentHashes) {
    const uint64_t last = hashes.back();
    hashes.pop_back();
    hashes.back() = mix_hash(hashes.back(), last) | 1;
  }
  return {reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)};
}

std::vector<uint64_t> from_bytes(const std::string& bytes) {
  std::vector<uint64_t> hashes(bytes.size() / sizeof(uint64_t));
  std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(uint64_t));
  return hashes;
}

const char* const kCauses =
    "usual causes: an optimizer of torch::optim that steps inside `run` (make it with lockstep::optimizer<O>(model, "
    "options)), torch::nn::init or other random numbers inside `run` (initialize outside of it), a write on one "
    "replica only (write on all of them, or outside of `run`; parameters without requires_grad may differ)";

}  // namespace

ModuleWrites::ModuleWrites(StrategyImpl& strategy, const Modules& modules, uint64_t number)
    : strategy_(strategy), number_(number), schedule_(CheckSchedule::from_environment()), replicas_(modules.size()) {
  for (size_t r = 0; r < modules.size(); ++r) {
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const auto& item : modules[r]->named_parameters()) {
      if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      if (r == 0) names_.push_back(item.key());
      replicas_[r].parameters.push_back({item.value(), strategy.parameter_writes().of(item.value())});
    }
  }
}

void ModuleWrites::begin_replica(int replica) {
  for (Parameter& parameter : replicas_[static_cast<size_t>(replica)].parameters) {
    parameter.before = version_of(parameter.tensor);
    parameter.by_optimizers_before = *parameter.by_optimizers;
  }
}

void ModuleWrites::end_replica(int replica) {
  Replica& own = replicas_[static_cast<size_t>(replica)];
  for (size_t p = 0; p < own.parameters.size(); ++p) {
    const Parameter& parameter = own.parameters[p];
    const uint32_t writes = version_of(parameter.tensor) - parameter.before;
    const uint32_t by_optimizers = *parameter.by_optimizers - parameter.by_optimizers_before;
    if (writes != by_optimizers && parameter.tensor.requires_grad()) own.written.push_back(p);
  }
}

/// Returns the parameters that any local replica has written, in order.
std::vector<size_t> ModuleWrites::take_written() {
  std::vector<size_t> all;
  for (Replica& replica : replicas_) {
    all.insert(all.end(), replica.written.begin(), replica.written.end());
    replica.written.clear();
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string ModuleWrites::names_of(const std::vector<size_t>& written) const {
  constexpr size_t kNamed = 5;
  std::string names;
  for (size_t i = 0; i < std::min(kNamed, written.size()); ++i) names += (i == 0 ? "" : ", ") + names_[written[i]];
  return written.size() <= kNamed ? names : c10::str(names, " and ", written.size() - kNamed, " more");
}

/// Returns the parameters that no optimizer has updated in this run and that need gradients.
std::vector<size_t> ModuleWrites::not_updated() const {
  std::vector<size_t> result;
  for (size_t p = 0; p < names_.size(); ++p) {
    const Parameter& parameter = replicas_[0].parameters[p];
    const bool is_updated = *parameter.by_optimizers != parameter.by_optimizers_before;
    if (!is_updated && parameter.tensor.requires_grad()) result.push_back(p);
  }
  return result;
}

void ModuleWrites::check_replicas() {
  ++runs_.made;
  const std::vector<size_t> written = take_written();
  if (!written.empty()) ++writes_.made;
  std::vector<size_t> compared;
  if (schedule_.is_due(runs_.compared, runs_.made)) {
    runs_.compared = runs_.made;
    compared = not_updated();
  }
  if (!written.empty() && schedule_.is_due(writes_.compared, writes_.made)) {
    writes_.compared = writes_.made;
    std::vector<size_t> both;
    std::set_union(compared.begin(), compared.end(), written.begin(), written.end(), std::back_inserter(both));
    compared = std::move(both);
  }
  if (!compared.empty()) compare(compared);
  if (written.empty() || has_warned_) return;
  has_warned_ = true;
  LOCKSTEP_LOG(Warn) << "[module] parameters were written inside `run` by something else than lockstep's optimizer: "
                     << names_of(written)
                     << "; an optimizer of torch::optim trains each replica by itself, make it with "
                        "lockstep::optimizer<O>(model, options); other writes must be the same on all replicas";
}

Difference ModuleWrites::describe(const char* members) const {
  return {c10::str("[module] ", members, " must hold equal parameters after a `run`"),
          c10::str("compared after run ", runs_.made, ", ",
                   last_equal_run_ == 0 ? "not compared before" : c10::str("equal after run ", last_equal_run_)),
          kCauses};
}

void ModuleWrites::compare(const std::vector<size_t>& parameters) {
  std::vector<HeldTensors> held;
  std::vector<std::vector<uint64_t>> hashes;
  for (const Replica& replica : replicas_) {
    held.emplace_back();
    for (const size_t p : parameters) held.back().push_back({"parameter " + names_[p], replica.parameters[p].tensor});
    hashes.push_back(hash_tensors(held.back()));
  }
  check_equal("local replica", held[0], hashes, describe("replicas"));
  // Values of a job stay with worker 0, so there must be few.
  const CheckSchedule few;
  const bool with_others = few.is_due(runs_.with_others, runs_.made) || few.is_due(writes_.with_others, writes_.made);
  if (strategy_.num_workers() > 1 && with_others) {
    runs_.with_others = runs_.made;
    writes_.with_others = writes_.made;
    compare_with_other_workers(held[0], hashes[0]);
  }
  last_equal_run_ = runs_.made;
}

/// Each worker publishes its hashes and compares those that are there: the last worker sees all of them. A worker that
/// writes alone finds no others, and does not wait for them again.
void ModuleWrites::compare_with_other_workers(const HeldTensors& held, const std::vector<uint64_t>& hashes) {
  comm::Job& job = strategy_.workers()->job();
  const std::string key = c10::str(strategy_.workers()->name(), "/writes/", number_, "/", strategy_.num_runs(), "/");
  const auto deadline =
      std::chrono::steady_clock::now() + (others_come_ ? kPatienceWithWorkers : kPatienceWithWorkers / 100);
  std::vector<std::vector<uint64_t>> all;
  try {
    job.set(key + std::to_string(job.worker()), as_bytes(hashes));
    for (int worker = 0; worker < job.num_workers(); ++worker) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      all.push_back(from_bytes(job.get(key + std::to_string(worker), std::max(left, std::chrono::milliseconds(1)))));
    }
    others_come_ = true;
  } catch (const CollectiveError&) {
    others_come_ = false;
    // What another worker has found ends this one, too. Of a lost worker the next collective says more.
    const comm::JobFailure* const failure = job.failure();
    if (failure == nullptr || failure->kind != comm::JobFailure::Kind::Failed) return;
    comm::CollectiveCall call;
    call.operation = "comparison of workers";
    comm::throw_worker_failure(*failure, call, job.worker(), strategy_.workers()->name());
  } catch (const c10::ValueError&) {
    return;  // the first worker stores no more values
  }
  check_equal("worker", held, all, describe("workers"));
}

}  // namespace lockstep::detail
