#include "lockstep/strategy/optimizer/update/device_optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/strategy/optimizer/update/rows/row_state.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

using torch::optim::AdagradOptions;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerOptions;
using torch::optim::RMSpropOptions;
using torch::optim::SGDOptions;

at::Tensor number_on(const at::Tensor& parameter, double value) {
  return at::scalar_tensor(value, at::kDouble).to(parameter.device());
}

void add_defined(const char* what, const std::string& of, const at::Tensor& tensor, HeldTensors& held) {
  if (tensor.defined()) held.push_back({c10::str(what, " of ", of), tensor});
}

void add_field(ParameterState& state, const char* name, const at::Tensor& tensor) {
  if (tensor.defined()) state.tensors.emplace(name, tensor);
}

at::Tensor field_of(const ParameterState& state, const char* name) {
  const auto found = state.tensors.find(name);
  return found == state.tensors.end() ? at::Tensor() : found->second;
}

/// A scalar in the dtype of the tensor that it is multiplied with.
at::Tensor as_factor(const at::Tensor& number, const at::Tensor& like) { return number.to(like.scalar_type()); }

class DeviceSgd final : public DeviceOptimizer {
 public:
  DeviceSgd(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& groups)
      : DeviceOptimizer(parameters, groups), momentum_(parameters.size()) {}

  void add_state(const std::vector<std::string>& names, HeldTensors& held) const override {
    for (size_t p = 0; p < momentum_.size(); ++p) {
      add_defined("momentum_buffer", parameter_name(names, p), momentum_[p], held);
    }
  }

  ParameterState state_of(size_t p) const override {
    ParameterState state;
    add_field(state, "momentum_buffer", momentum_[p]);
    return state;
  }

 private:
  void load_tensors(size_t p, const ParameterState& state) override {
    momentum_[p] = field_of(state, "momentum_buffer");
  }

  void drop_uncomputed() override {
    for (at::Tensor& average : momentum_) {
      if (xla::is_uncomputed(average)) average.reset();
    }
  }

  void update(const OptimizerOptions& given, const at::Tensor& rate, const Cohort& cohort) override {
    const auto& options = static_cast<const SGDOptions&>(given);
    for (const size_t p : cohort.members) {
      const at::Tensor& parameter = parameters_[p];
      at::Tensor gradient = parameter.grad();
      if (options.weight_decay() != 0) gradient = gradient.add(parameter, options.weight_decay());
      if (options.momentum() != 0) gradient = with_momentum(options, p, gradient);
      parameter.sub_(gradient * as_factor(rate, parameter));
    }
  }

  at::Tensor with_momentum(const SGDOptions& options, size_t p, const at::Tensor& gradient) {
    at::Tensor& average = momentum_[p];
    if (!average.defined()) {
      average = at::zeros_like(parameters_[p]);
      average.copy_(gradient);
    } else {
      average.mul_(options.momentum()).add_(gradient, 1 - options.dampening());
    }
    return options.nesterov() ? gradient.add(average, options.momentum()) : average;
  }

  std::vector<at::Tensor> momentum_;
};

/// `Options` is AdamOptions or AdamWOptions; with the second, weight decay changes the parameter, not the gradient.
template <class Options>
class DeviceAdam final : public DeviceOptimizer {
 public:
  DeviceAdam(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& groups)
      : DeviceOptimizer(parameters, groups), state_(parameters.size()) {}

  void add_state(const std::vector<std::string>& names, HeldTensors& held) const override {
    for (size_t p = 0; p < state_.size(); ++p) {
      const std::string name = parameter_name(names, p);
      add_defined("exp_avg", name, state_[p].mean, held);
      add_defined("exp_avg_sq", name, state_[p].mean_square, held);
      add_defined("max_exp_avg_sq", name, state_[p].max_mean_square, held);
    }
  }

  ParameterState state_of(size_t p) const override {
    ParameterState state;
    if (!state_[p].mean.defined()) return state;
    add_field(state, "exp_avg", state_[p].mean);
    add_field(state, "exp_avg_sq", state_[p].mean_square);
    add_field(state, "max_exp_avg_sq", state_[p].max_mean_square);
    state.integers["step"] = count_of(p);
    return state;
  }

 private:
  void load_tensors(size_t p, const ParameterState& state) override {
    state_[p] = {field_of(state, "exp_avg"), field_of(state, "exp_avg_sq"), field_of(state, "max_exp_avg_sq")};
  }

  struct State {
    at::Tensor mean;
    at::Tensor mean_square;
    at::Tensor max_mean_square;
  };

  void drop_uncomputed() override {
    for (State& state : state_) {
      if (xla::is_uncomputed(state.mean) || xla::is_uncomputed(state.mean_square)) state = {};
      if (xla::is_uncomputed(state.max_mean_square)) state.max_mean_square.reset();
    }
  }

  void update(const OptimizerOptions& given, const at::Tensor& rate, const Cohort& cohort) override {
    const auto& options = static_cast<const Options&>(given);
    const auto [beta1, beta2] = options.betas();
    // exp(count * log(beta)) is beta ^ count, computed on the device
    const at::Tensor correction1 = 1 - at::exp(cohort.count * std::log(beta1));
    const at::Tensor correction2 = at::sqrt(1 - at::exp(cohort.count * std::log(beta2)));
    const at::Tensor size = rate / correction1;
    for (const size_t p : cohort.members) update_one(options, p, rate, size, correction2);
  }

  void update_one(const Options& options, size_t p, const at::Tensor& rate, const at::Tensor& size,
                  const at::Tensor& correction2) {
    const at::Tensor& parameter = parameters_[p];
    const auto [beta1, beta2] = options.betas();
    at::Tensor gradient = parameter.grad();
    if (options.weight_decay() != 0 && kDecouples) {
      parameter.mul_(as_factor(1 - rate * options.weight_decay(), parameter));
    } else if (options.weight_decay() != 0) {
      gradient = gradient.add(parameter, options.weight_decay());
    }
    State& state = state_[p];
    if (!state.mean.defined()) state = {at::zeros_like(parameter), at::zeros_like(parameter), {}};
    state.mean.mul_(beta1).add_(gradient, 1 - beta1);
    state.mean_square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    at::Tensor square = state.mean_square;
    if (options.amsgrad()) {
      if (!state.max_mean_square.defined()) state.max_mean_square = at::zeros_like(parameter);
      state.max_mean_square.copy_(at::maximum(state.max_mean_square, square));
      square = state.max_mean_square;
    }
    const at::Tensor divisor = (square.sqrt() / as_factor(correction2, square)).add_(options.eps());
    parameter.sub_(state.mean / divisor * as_factor(size, parameter));
  }

  static constexpr bool kDecouples = std::is_same_v<Options, AdamWOptions>;
  std::vector<State> state_;
};

class Hash {
 public:
  Hash& add(double number) {
    hash_ = hash_ * 1000003 ^ std::hash<double>()(number);
    return *this;
  }
  size_t get() const { return hash_; }

 private:
  size_t hash_ = 0;
};

template <class Options>
void add_adam(Hash& hash, const Options& options) {
  const auto [beta1, beta2] = options.betas();
  hash.add(beta1).add(beta2).add(options.eps()).add(options.weight_decay()).add(options.amsgrad() ? 1 : 0);
}

}  // namespace

DeviceOptimizer::DeviceOptimizer(std::vector<at::Tensor> parameters, std::vector<size_t> groups)
    : parameters_(std::move(parameters)) {
  for (size_t p = 0; p < groups.size(); ++p) {
    if (groups[p] >= cohorts_.size()) cohorts_.resize(groups[p] + 1);
    cohorts_[groups[p]].members.push_back(p);
  }
  for (size_t group = 0; group < cohorts_.size(); ++group) {
    cohorts_[group].group = group;
    cohorts_[group].split_from = group;
    cohorts_[group].count = number_on(parameters_[0], 0);
    rates_.push_back(number_on(parameters_[0], 0));
    sent_rates_.push_back(0);
  }
}

std::unique_ptr<DeviceOptimizer> DeviceOptimizer::make(const torch::optim::Optimizer& like,
                                                       const std::vector<at::Tensor>& parameters,
                                                       const std::vector<size_t>& groups) {
  if (parameters.empty() || parameters[0].device().type() != c10::DeviceType::XLA) return nullptr;
  switch (update_rule(like)) {
    case UpdateRule::Sgd:
      return std::make_unique<DeviceSgd>(parameters, groups);
    case UpdateRule::Adam:
      return std::make_unique<DeviceAdam<AdamOptions>>(parameters, groups);
    case UpdateRule::AdamW:
      return std::make_unique<DeviceAdam<AdamWOptions>>(parameters, groups);
    default:
      return nullptr;
  }
}

int64_t DeviceOptimizer::count_of(size_t parameter) const {
  for (const Cohort& cohort : cohorts_) {
    if (std::find(cohort.members.begin(), cohort.members.end(), parameter) == cohort.members.end()) continue;
    return static_cast<int64_t>(cohort.count.cpu().item<double>());
  }
  return 0;
}

void DeviceOptimizer::load(const std::vector<ParameterState>& states) {
  // For each group: the parameters with each number of updates.
  std::vector<std::map<int64_t, std::vector<size_t>>> by_count(rates_.size());
  std::vector<size_t> group_of(states.size());
  for (const Cohort& cohort : cohorts_) {
    for (const size_t p : cohort.members) group_of[p] = cohort.group;
  }
  for (size_t p = 0; p < states.size(); ++p) {
    const auto step = states[p].integers.find("step");
    by_count[group_of[p]][step == states[p].integers.end() ? 0 : step->second].push_back(p);
    load_tensors(p, states[p]);
  }
  cohorts_.clear();
  for (size_t group = 0; group < by_count.size(); ++group) {
    if (by_count[group].empty()) by_count[group][0] = {};
    for (auto& [count, members] : by_count[group]) {
      cohorts_.push_back(
          {group, std::move(members), number_on(parameters_[0], static_cast<double>(count)), cohorts_.size()});
    }
  }
}

void DeviceOptimizer::drop_lost_state() {
  if (xla::num_losses() == losses_) return;
  losses_ = xla::num_losses();
  drop_uncomputed();
  // A count is a copy of the one that its cohort was split from.
  for (Cohort& cohort : cohorts_) {
    if (xla::is_uncomputed(cohort.count)) cohort.count = cohorts_[cohort.split_from].count.clone();
  }
}

void DeviceOptimizer::take_rates(const Groups& options) {
  if (std::exchange(sent_in_run_, false)) {
    std::fill(sent_rates_.begin(), sent_rates_.end(), std::numeric_limits<double>::quiet_NaN());
  }
  send_rates(options);
}

bool DeviceOptimizer::send_rates(const Groups& options) {
  const at::NoGradGuard no_grad;
  bool any = false;
  for (size_t group = 0; group < rates_.size(); ++group) {
    const double rate = options[group].options().get_lr();
    if (sent_rates_[group] == rate) continue;
    rates_[group].copy_(at::scalar_tensor(rate, at::kDouble));
    sent_rates_[group] = rate;
    any = true;
  }
  return any;
}

/// Parameters without a gradient are not updated: from now on their updates are counted apart.
void DeviceOptimizer::split_cohorts() {
  const size_t before = cohorts_.size();
  for (size_t i = 0; i < before; ++i) {
    std::vector<size_t> with;
    std::vector<size_t> without;
    for (const size_t p : cohorts_[i].members) (parameters_[p].grad().defined() ? with : without).push_back(p);
    if (with.empty() || without.empty()) continue;
    cohorts_.push_back({cohorts_[i].group, std::move(without), cohorts_[i].count.clone(), i});
    cohorts_[i].members = std::move(with);
  }
}

void DeviceOptimizer::step(const Groups& options) {
  const at::NoGradGuard no_grad;
  if (send_rates(options)) sent_in_run_ = true;
  split_cohorts();
  for (const Cohort& cohort : cohorts_) {
    if (cohort.members.empty() || !parameters_[cohort.members[0]].grad().defined()) continue;
    cohort.count.add_(1);
    update(options[cohort.group].options(), rates_[cohort.group], cohort);
  }
}

size_t fingerprint(const torch::optim::Optimizer& optimizer) {
  Hash hash;
  for (const auto& group : optimizer.param_groups()) {
    const OptimizerOptions& options = group.options();
    if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) {
      add_adam(hash, *adam);
    } else if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) {
      add_adam(hash, *adamw);
    } else if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) {
      hash.add(sgd->momentum()).add(sgd->dampening()).add(sgd->weight_decay()).add(sgd->nesterov() ? 1 : 0);
    } else if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) {
      hash.add(rmsprop->alpha()).add(rmsprop->eps()).add(rmsprop->weight_decay()).add(rmsprop->momentum());
      hash.add(rmsprop->centered() ? 1 : 0);
    } else if (const auto* adagrad = dynamic_cast<const AdagradOptions*>(&options)) {
      hash.add(adagrad->lr_decay()).add(adagrad->weight_decay()).add(adagrad->eps());
    }
  }
  return hash.get();
}

void add_host_rates(const torch::optim::Optimizer& optimizer, std::vector<double>& rates) {
  for (const auto& group : optimizer.param_groups()) {
    const OptimizerOptions& options = group.options();
    const bool on_device = dynamic_cast<const AdamOptions*>(&options) != nullptr ||
                           dynamic_cast<const AdamWOptions*>(&options) != nullptr ||
                           dynamic_cast<const SGDOptions*>(&options) != nullptr;
    if (on_device) continue;
    try {
      rates.push_back(options.get_lr());
    } catch (const c10::Error&) {
      return;  // a kind without a rate
    }
  }
}

}  // namespace lockstep::detail
