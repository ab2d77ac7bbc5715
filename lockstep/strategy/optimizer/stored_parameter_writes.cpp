#include "lockstep/strategy/optimizer/stored_parameter_writes.h"

#include <algorithm>

#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Larger parameters are tables: reading them takes longer than a step.
constexpr size_t kHashedBytes = size_t{16} << 20;

}  // namespace

StoredParameterWrites::StoredParameterWrites(const StrategyImpl& strategy, const Modules& modules,
                                             const std::vector<CentralTensor>& central)
    : strategy_(strategy), central_(central) {
  for (const auto& module : modules) {
    replicas_.emplace_back();
    for (const auto& [name, parameter] : distinct(module->named_parameters())) {
      if (replicas_.size() == 1) names_.push_back(name);
      replicas_.back().parameters.push_back(parameter);
      replicas_.back().by_optimizers.push_back(strategy.parameter_writes().of(parameter));
    }
    replicas_.back().by_optimizers_before.resize(names_.size());
    replicas_.back().marks.resize(names_.size());
    replicas_.back().written.resize(names_.size());
    take(static_cast<int>(replicas_.size()) - 1);
  }
}

void StoredParameterWrites::begin_run() {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    std::fill(replicas_[r].written.begin(), replicas_[r].written.end(), 0);
    take(static_cast<int>(r));
  }
  ++num_runs_;
  hashes_.clear();
  if (!schedule_.is_due(num_hashed_runs_, num_runs_)) return;
  num_hashed_runs_ = num_runs_;
  hashes_ = hash_stored();
  updates_before_.clear();
  for (size_t p = 0; p < names_.size(); ++p) updates_before_.push_back(*replicas_[0].by_optimizers[p]);
}

std::vector<uint64_t> StoredParameterWrites::hash_stored() const {
  HeldTensors held;
  for (size_t p = 0; p < names_.size(); ++p) {
    const at::Tensor& stored = central_[p].stored();
    held.push_back({names_[p], stored.nbytes() <= kHashedBytes ? stored : at::Tensor()});
  }
  return hash_tensors(held);
}

void StoredParameterWrites::take(int replica) {
  Replica& own = replicas_[static_cast<size_t>(replica)];
  for (size_t p = 0; p < names_.size(); ++p) {
    own.marks[p].take(own.parameters[p]);
    own.by_optimizers_before[p] = *own.by_optimizers[p];
  }
}

void StoredParameterWrites::find_writes(int replica) {
  Replica& own = replicas_[static_cast<size_t>(replica)];
  for (size_t p = 0; p < names_.size(); ++p) {
    const uint32_t by_optimizers = *own.by_optimizers[p] - own.by_optimizers_before[p];
    if (!own.marks[p].is_of(own.parameters[p], by_optimizers)) own.written[p] = 1;
  }
}

bool StoredParameterWrites::is_allowed(size_t parameter) const {
  for (size_t r = 1; r < replicas_.size(); ++r) {
    if (replicas_[r].written[parameter] != 0) return false;
  }
  if (replicas_[0].written[parameter] == 0) return true;
  for (int r = 0; r < strategy_.num_local_replicas(); ++r) {
    if (!central_[parameter].is_in_place(r)) return false;
  }
  return replicas_[0].parameters[parameter].is_alias_of(central_[parameter].stored());
}

void StoredParameterWrites::restore_memory() const {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    for (size_t p = 0; p < names_.size(); ++p) {
      const at::Tensor& seen = central_[p].seen(static_cast<int>(r));
      if (replicas_[r].written[p] != 0 && !replicas_[r].parameters[p].is_alias_of(seen)) {
        replicas_[r].parameters[p].set_data(seen);
      }
    }
  }
}

/// Returns the first parameter whose stored values have changed though no optimizer has updated it.
std::string StoredParameterWrites::described_silent_write() const {
  if (hashes_.empty()) return "";
  const std::vector<uint64_t> after = hash_stored();
  for (size_t p = 0; p < names_.size(); ++p) {
    const bool is_updated = *replicas_[0].by_optimizers[p] != updates_before_[p];
    const bool may_write = is_updated || replicas_[0].written[p] != 0 || after[p] == hashes_[p];
    if (may_write) continue;
    return c10::str(
        "parameter=", names_[p],
        ", by data() or data_ptr(), as an optimizer of torch::optim does, strategy=", strategy_.type_name());
  }
  return "";
}

std::string StoredParameterWrites::described() const {
  for (size_t p = 0; p < names_.size(); ++p) {
    if (is_allowed(p)) continue;
    std::string writers;
    for (size_t r = 0; r < replicas_.size(); ++r) {
      if (replicas_[r].written[p] != 0) writers += (writers.empty() ? "" : ", ") + std::to_string(r);
    }
    return c10::str("parameter=", names_[p], ", replicas=", writers, " of ", replicas_.size(),
                    ", strategy=", strategy_.type_name());
  }
  return replicas_.size() > 1 ? described_silent_write() : "";
}

}  // namespace lockstep::detail
