#include "lockstep/strategy/optimizer/replica_check.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

constexpr size_t kNamedTensors = 5;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor.is_conj();
}

/// Never 0.
uint64_t hash_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 1;
  at::Tensor plain = tensor;
  if (!is_plain(tensor)) {
    const at::NoGradGuard no_grad;
    plain = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  }
  uint64_t hash = mix_hash(static_cast<uint64_t>(plain.scalar_type()), static_cast<uint64_t>(plain.dim()));
  for (const int64_t size : plain.sizes()) hash = mix_hash(hash, static_cast<uint64_t>(size));
  return mix_hash(hash, static_cast<const char*>(plain.data_ptr()), plain.nbytes()) | 1;
}

std::string list_of(const std::vector<size_t>& numbers) {
  std::string text;
  for (const size_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Who has other bits than most: "replica 1 has other bits than replica 0, 2"; empty where all have the same.
std::string describe_difference(const char* member, const std::vector<std::vector<uint64_t>>& hashes, size_t tensor) {
  std::map<uint64_t, std::vector<size_t>> holders;
  for (size_t i = 0; i < hashes.size(); ++i) {
    holders[hashes[i][tensor]].push_back(i);
  }
  if (holders.size() == 1) return "";
  const auto* most = &holders.at(hashes[0][tensor]);
  for (const auto& [hash, members] : holders) {
    if (members.size() > most->size()) most = &members;
  }
  std::vector<size_t> others;
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (std::find(most->begin(), most->end(), i) == most->end()) others.push_back(i);
  }
  return c10::str(member, " ", list_of(others), " has other bits than ", member, " ", list_of(*most));
}

}  // namespace

std::string parameter_name(const std::vector<std::string>& names, size_t parameter) {
  return parameter < names.size() ? names[parameter] : std::to_string(parameter);
}

void add_parameters(const std::vector<ReplicaParameters>& replicas, size_t replica, HeldTensors& held) {
  const auto has_copy = [](const ReplicaParameters& of_replica, size_t p) {
    const at::Tensor& parameter = of_replica.parameters[p];
    const at::Tensor& stored = of_replica.stored[p];
    return !of_replica.stored_once ||
           (parameter.device() != stored.device() && parameter.data_ptr() != stored.data_ptr());
  };
  for (size_t p = 0; p < replicas[replica].parameters.size(); ++p) {
    const bool is_held = std::any_of(replicas.begin(), replicas.end(),
                                     [&](const ReplicaParameters& of_replica) { return has_copy(of_replica, p); });
    if (!is_held || !replicas[replica].parameters[p].requires_grad()) continue;
    held.push_back({"parameter " + parameter_name(replicas[replica].names, p), replicas[replica].parameters[p]});
  }
}

void check_own_parameters(const std::vector<ReplicaParameters>& replicas, const std::vector<std::string>& names) {
  if (replicas[0].stored_once) return;
  for (size_t r = 1; r < replicas.size(); ++r) {
    for (size_t p = 0; p < replicas[r].parameters.size(); ++p) {
      const at::Tensor& parameter = replicas[r].parameters[p];
      LOCKSTEP_CHECK_VALUE(
          parameter.numel() == 0 || !parameter.is_alias_of(replicas[0].parameters[p]),
          "[optimizer] every replica must have parameters of its own: parameter=", parameter_name(names, p),
          ", shape=", parameter.sizes(), " is one tensor for replicas 0 and ", r,
          "; it was made without strategy.scope(); make it with lockstep::module or as a Variable under the scope");
    }
  }
}

std::vector<uint64_t> hash_tensors(const HeldTensors& held) {
  std::vector<uint64_t> hashes(held.size(), 0);
  const auto is_on_cpu = [&](size_t i) { return !held[i].tensor.defined() || held[i].tensor.is_cpu(); };
  for (size_t i = 0; i < held.size(); ++i) {
    if (!is_on_cpu(i)) hashes[i] = hash_of(held[i].tensor);
  }
  for_each_in_parallel(static_cast<int64_t>(held.size()), [&](int64_t index, int /*thread*/) {
    const auto i = static_cast<size_t>(index);
    if (hashes[i] == 0) hashes[i] = hash_of(held[i].tensor);
  });
  return hashes;
}

CheckSchedule CheckSchedule::from_environment() {
  const std::string word = env::text("LOCKSTEP_CHECK_REPLICAS");
  CheckSchedule schedule;
  if (word == "auto") return schedule;
  if (word == "off" || word == "0") {
    schedule.is_off_ = true;
    return schedule;
  }
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), schedule.interval_);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == word.data() + word.size() && schedule.interval_ > 0,
                       "[environment] the variable must be auto, off or a number of steps: LOCKSTEP_CHECK_REPLICAS=\"",
                       word, "\"");
  return schedule;
}

bool CheckSchedule::is_due(uint64_t compared, uint64_t made) const {
  if (is_off_ || made == compared) return false;
  if (interval_ > 0) return made / interval_ > compared / interval_;
  uint64_t power = 1;
  while (power <= made / 2) power *= 2;
  return power > compared || made / 1000 > compared / 1000;
}

void check_equal(const char* member, const HeldTensors& held, const std::vector<std::vector<uint64_t>>& hashes,
                 const Difference& difference) {
  for (size_t i = 1; i < hashes.size(); ++i) {
    LOCKSTEP_CHECK_COLLECTIVE(hashes[i].size() == hashes[0].size(), difference.rule, ", but ", member, " 0 holds ",
                              hashes[0].size(), " tensors and ", member, " ", i, " holds ", hashes[i].size(), "; ",
                              difference.when, "; ", difference.causes);
  }
  std::string different;
  size_t count = 0;
  for (size_t t = 0; t < hashes[0].size(); ++t) {
    const std::string who = describe_difference(member, hashes, t);
    if (who.empty() || ++count > kNamedTensors) continue;
    const HeldTensor& one = held[t];
    different += c10::str(different.empty() ? "" : "; ", one.name, " (", dtype_name(one.tensor.scalar_type()),
                          one.tensor.sizes(), "): ", who);
  }
  if (count > kNamedTensors) different += c10::str("; and ", count - kNamedTensors, " more");
  LOCKSTEP_CHECK_COLLECTIVE(count == 0, difference.rule, ", but they differ: ", different, "; ", difference.when, "; ",
                            difference.causes);
}

ReplicaCheck::ReplicaCheck(const StrategyImpl& strategy, int num_local_replicas)
    : strategy_(strategy),
      schedule_(CheckSchedule::from_environment()),
      steps_(static_cast<size_t>(num_local_replicas)) {}

void ReplicaCheck::begin_run() {
  uint64_t made = 0;
  uint64_t compared = steps_[0].compared;
  for (const Steps& steps : steps_) {
    made = std::max(made, steps.made);
    compared = std::min(compared, steps.compared);
  }
  for (Steps& steps : steps_) {
    steps.made = made;
    steps.compared = compared;
  }
}

void ReplicaCheck::count_replayed_step() {
  for (Steps& steps : steps_) {
    if (steps.made > 0) ++steps.made;
  }
}

bool ReplicaCheck::is_due_before_first_step(int replica) const {
  return steps_[static_cast<size_t>(replica)].made == 0 && strategy_.num_replicas_in_sync() > 1 &&
         !strategy_.is_traced() && !schedule_.is_off();
}

bool ReplicaCheck::is_due(int replica) const {
  const Steps& steps = steps_[static_cast<size_t>(replica)];
  return strategy_.num_replicas_in_sync() > 1 && schedule_.is_due(steps.compared, steps.made);
}

Difference ReplicaCheck::describe(const Steps& steps) const {
  const std::string before =
      steps.compared == 0 ? "not compared before" : c10::str("equal after step ", steps.compared);
  const std::string engine = strategy_.workers() == nullptr ? "threads of one process" : strategy_.workers()->engine();
  return {c10::str("[optimizer] replicas must hold equal values ", steps.made == 0 ? "before" : "after", " a step"),
          steps.made == 0 ? "compared before step 1" : c10::str("compared after step ", steps.made, ", ", before),
          c10::str("usual causes: parameters made without strategy.scope(), an optimizer of torch::optim that steps ",
                   "inside `run` (make it with lockstep::optimizer<O>), initialization or other writes inside `run` ",
                   "that differ between replicas, a fault of the engine (", engine,
                   "). LOCKSTEP_CHECK_REPLICAS=1 compares after every step")};
}

void ReplicaCheck::compare(int replica, const HeldTensors& held) {
  Steps& steps = steps_[static_cast<size_t>(replica)];
  const std::vector<uint64_t> own = hash_tensors(held);
  // The number of hashes comes first: replicas that hold other tensors than others must be named, too.
  std::vector<int64_t> sent{static_cast<int64_t>(own.size())};
  sent.insert(sent.end(), own.begin(), own.end());
  const at::NoGradGuard no_grad;
  const comm::OperationScope operation({.name = "comparison of replicas"});
  const at::Tensor all = strategy_.group(replica).all_gather(
      at::from_blob(sent.data(), {static_cast<int64_t>(sent.size())}, at::kLong).clone());
  const int64_t* next = all.data_ptr<int64_t>();
  std::vector<std::vector<uint64_t>> hashes;
  for (int r = 0; r < strategy_.num_replicas_in_sync(); ++r) {
    const int64_t count = *next++;
    hashes.emplace_back(next, next + count);
    next += count;
  }
  check_equal("replica", held, hashes, describe(steps));
  steps.compared = steps.made;
}

void ReplicaCheck::compare_all(const std::vector<HeldTensors>& held) {
  std::vector<std::vector<uint64_t>> hashes;
  for (const HeldTensors& of_replica : held) hashes.push_back(hash_tensors(of_replica));
  check_equal("replica", held[0], hashes, describe(steps_[0]));
  for (Steps& steps : steps_) steps.compared = steps.made;
}

}  // namespace lockstep::detail
