#include "lockstep/strategy/optimizer/update/fused_update.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/update/device_counts.h"
#include "lockstep/strategy/optimizer/update/fused_batch.h"
#include "lockstep/strategy/optimizer/update/memory_extents.h"
#include "lockstep/strategy/optimizer/update/optimizer_state.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

bool is_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() && !tensor.is_inference();
}

/// Why no fused function takes a parameter with this gradient; null if one does.
const char* why_not_fused(UpdateRule rule, const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!is_plain_memory(parameter)) return "has strides with holes, or is an inference tensor";
  if (!has_fused_functions(rule, parameter.scalar_type())) return "has a dtype without fused functions";
  if (gradient.layout() != at::kStrided) return "has a sparse gradient";
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device() ||
      gradient.sizes() != parameter.sizes()) {
    return "has a gradient of another kind";
  }
  return nullptr;
}

/// Returns values with the strides of a parameter, which they have nearly always.
at::Tensor with_strides_of(const at::Tensor& parameter, const at::Tensor& values) {
  if (values.is_neg()) return with_strides_of(parameter, values.resolve_neg());
  if (values.strides() == parameter.strides()) return values;
  bool differs = false;
  for (int64_t dim = 0; dim < parameter.dim(); ++dim) {
    differs = differs || (parameter.size(dim) > 1 && values.stride(dim) != parameter.stride(dim));
  }
  if (!differs) return values.as_strided(parameter.sizes(), parameter.strides());
  return at::empty_strided(parameter.sizes(), parameter.strides(), values.options()).copy_(values);
}

}  // namespace

class FusedUpdate::Impl {
 public:
  Impl(UpdateRule rule, c10::DeviceType device) : rule_(rule), device_(device), counts_(rule) {}

  void take_rates(const optim::Optimizer& optimizer);
  bool can_skip(optim::Optimizer& optimizer);
  bool step(optim::Optimizer& optimizer, const at::Tensor& found_inf);
  void give_counts(optim::Optimizer& optimizer) { counts_.give(optimizer); }
  const std::string& why_not_captured() const { return why_not_captured_; }

 private:
  struct Rate {
    size_t group;
    c10::Device device;
    at::ScalarType dtype;
    at::Tensor value;
    double sent;
  };

  void follow(const optim::Optimizer& optimizer);
  void collect(optim::Optimizer& optimizer, const at::Tensor& found_inf);
  void take(optim::Optimizer& optimizer, size_t group, size_t place, const at::Tensor& gradient);
  StateFields fields_of(optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter, bool& is_first) const;
  const char* why_in_loop(optim::Optimizer& optimizer, size_t place, const at::Tensor& gradient) const;
  FusedBatch& batch_for(size_t group, const at::Tensor& parameter, bool is_first);
  at::Tensor rate_for(const optim::Optimizer& optimizer, const FusedBatch& batch);
  void step_loop(optim::Optimizer& optimizer);
  void clear();

  const UpdateRule rule_;
  const c10::DeviceType device_;
  /// In the order of the groups.
  std::vector<at::Tensor> parameters_;
  MemoryExtents extents_;
  DeviceCounts counts_;
  std::vector<Rate> rates_;
  /// Batches keep their memory between steps.
  std::vector<FusedBatch> batches_;
  std::vector<size_t> in_loop_;
  std::string why_not_captured_ = "the optimizer has not made a step";
  /// Whether `why_not_captured_` is of the steps before `take_rates`.
  bool is_new_run_ = true;
};

/// Notes the parameters at the first call, and which of them have memory in common.
void FusedUpdate::Impl::follow(const optim::Optimizer& optimizer) {
  const bool is_first = parameters_.empty();
  size_t place = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (is_first) parameters_.push_back(parameter);
      LOCKSTEP_ASSERT(place < parameters_.size() && parameters_[place].is_same(parameter),
                      "an optimizer must keep its parameters: number=", place);
      ++place;
    }
  }
  LOCKSTEP_ASSERT(place == parameters_.size(), "an optimizer must keep its parameters: number=", place);
  if (is_first) counts_.set_num_places(place);
  extents_.follow(place, [&](size_t i) -> const at::Tensor& { return parameters_[i]; });
}

/// Makes the tensors of the state that these options use where they are missing.
StateFields FusedUpdate::Impl::fields_of(optim::Optimizer& optimizer, size_t group, const at::Tensor& parameter,
                                         bool& is_first) const {
  const optim::OptimizerOptions& options = optimizer.param_groups()[group].options();
  if (rule_ == UpdateRule::Sgd && static_cast<const optim::SGDOptions&>(options).momentum() == 0) return {};
  optim::OptimizerParamState* state = find_optimizer_state(optimizer, parameter);
  if (state == nullptr) {
    set_optimizer_state(optimizer, parameter, empty_state(rule_));
    state = find_optimizer_state(optimizer, parameter);
  }
  const StateFields fields = state_fields(rule_, *state, options);
  for (at::Tensor* const field : fields.tensors) {
    if (field == nullptr) continue;
    if (!field->defined()) {
      *field = at::zeros_like(parameter, parameter.options().requires_grad(false));
      is_first = rule_ == UpdateRule::Sgd;
    }
    if (field->strides() != parameter.strides()) *field = with_strides_of(parameter, *field);
  }
  return fields;
}

FusedBatch& FusedUpdate::Impl::batch_for(size_t group, const at::Tensor& parameter, bool is_first) {
  for (auto batch = batches_.rbegin(); batch != batches_.rend(); ++batch) {
    if (batch->group == group && batch->device == parameter.device() && batch->dtype == parameter.scalar_type() &&
        batch->is_first == is_first) {
      return *batch;
    }
  }
  batches_.push_back({group, parameter.device(), parameter.scalar_type(), is_first});
  return batches_.back();
}

/// Why LibTorch's loop must update a parameter; null if it need not.
const char* FusedUpdate::Impl::why_in_loop(optim::Optimizer& optimizer, size_t place,
                                           const at::Tensor& gradient) const {
  const at::Tensor& parameter = parameters_[place];
  if (parameter.device().type() != device_) return "is on another device";
  if (extents_.overlaps(place)) return "has memory of another one";
  if (rule_ == UpdateRule::Adagrad && find_optimizer_state(optimizer, parameter) == nullptr) return "has no state";
  return why_not_fused(rule_, parameter, gradient);
}

void FusedUpdate::Impl::take(optim::Optimizer& optimizer, size_t group, size_t place, const at::Tensor& gradient) {
  const at::Tensor& parameter = parameters_[place];
  bool is_first = false;
  const StateFields fields = fields_of(optimizer, group, parameter, is_first);
  FusedBatch& batch = batch_for(group, parameter, is_first);
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(with_strides_of(parameter, gradient));
  for (size_t i = 0; i < fields.tensors.size(); ++i) {
    if (fields.tensors[i] != nullptr) batch.fields[i].push_back(*fields.tensors[i]);
  }
  if (fields.step == nullptr) return;
  optim::OptimizerParamState& state = *find_optimizer_state(optimizer, parameter);
  batch.counts.push_back(counts_.take(place, parameter.device(), state, *fields.step));
}

/// Divides the parameters that have a gradient into batches and those of LibTorch's loop, which counts on the host.
void FusedUpdate::Impl::collect(optim::Optimizer& optimizer, const at::Tensor& found_inf) {
  follow(optimizer);
  if (std::exchange(is_new_run_, false)) why_not_captured_.clear();
  size_t place = 0;
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group].params()) {
      const size_t at = place++;
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const char* const why = why_in_loop(optimizer, at, gradient);
      if (why == nullptr) {
        take(optimizer, group, at, gradient);
        continue;
      }
      in_loop_.push_back(at);
      why_not_captured_ = c10::str("a parameter is updated by LibTorch's loop, because it ", why, ": number=", at,
                                   ", shape=", parameter.sizes());
    }
  }
  LOCKSTEP_ASSERT(in_loop_.empty() || !found_inf.defined(), "a step that can be skipped: ", why_not_captured_);
  counts_.send();
  const auto is_here = [&](size_t left) { return counts_.has(left); };
  if (std::none_of(in_loop_.begin(), in_loop_.end(), is_here)) return;
  counts_.give(optimizer);
  for (const size_t left : in_loop_) {
    if (counts_.has(left)) counts_.drop(left);
  }
}

/// A rate that was changed since `take_rates` is sent as a part of the step.
at::Tensor FusedUpdate::Impl::rate_for(const optim::Optimizer& optimizer, const FusedBatch& batch) {
  const auto dtype = dtype_of_rate(rule_, batch.dtype);
  if (!dtype) {
    why_not_captured_ = "parameters are float64: the fused update takes their learning rate from the host";
    return {};
  }
  const double now = optimizer.param_groups()[batch.group].options().get_lr();
  for (Rate& rate : rates_) {
    if (rate.group != batch.group || rate.device != batch.device || rate.dtype != *dtype) continue;
    if (rate.sent != now) {
      why_not_captured_ = "a learning rate was changed inside of the step";
      rate.value.fill_(now);
      rate.sent = now;
    }
    return rate.value;
  }
  rates_.push_back({batch.group, batch.device, *dtype, at::empty({}, at::device(batch.device).dtype(*dtype)), now});
  return rates_.back().value.fill_(now);
}

void FusedUpdate::Impl::take_rates(const optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  is_new_run_ = true;
  for (Rate& rate : rates_) {
    const double now = optimizer.param_groups()[rate.group].options().get_lr();
    if (rate.sent == now) continue;
    rate.value.fill_(now);
    rate.sent = now;
  }
}

/// Lets LibTorch update the parameters that are not in a batch: those in one have no gradient meanwhile.
void FusedUpdate::Impl::step_loop(optim::Optimizer& optimizer) {
  std::vector<std::pair<at::Tensor, at::Tensor>> hidden;
  for (const FusedBatch& batch : batches_) {
    for (const at::Tensor& parameter : batch.parameters) hidden.emplace_back(parameter, parameter.grad());
  }
  const auto show = [&] {
    for (const auto& [parameter, gradient] : hidden) parameter.mutable_grad() = gradient;
  };
  for (const auto& [parameter, gradient] : hidden) parameter.mutable_grad().reset();
  try {
    optimizer.step();
  } catch (...) {
    show();
    throw;
  }
  show();
}

void FusedUpdate::Impl::clear() {
  for (FusedBatch& batch : batches_) batch.clear();
  counts_.end_step();
  in_loop_.clear();
}

bool FusedUpdate::Impl::can_skip(optim::Optimizer& optimizer) {
  if (rule_ != UpdateRule::Sgd && rule_ != UpdateRule::Adam && rule_ != UpdateRule::AdamW) return false;
  follow(optimizer);
  size_t place = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const size_t at = place++;
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (why_in_loop(optimizer, at, gradient) != nullptr) return false;
      if (rule_ != UpdateRule::Sgd) continue;
      // The first update takes the gradient as it is. A skipped one would leave zeros, to which dampening is applied.
      const auto& options = static_cast<const optim::SGDOptions&>(group.options());
      if (options.momentum() == 0 || options.dampening() == 0) continue;
      const auto* const state = static_cast<optim::SGDParamState*>(find_optimizer_state(optimizer, parameter));
      if (state == nullptr || !state->momentum_buffer().defined()) return false;
    }
  }
  return true;
}

bool FusedUpdate::Impl::step(optim::Optimizer& optimizer, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  clear();  // after a step that threw
  collect(optimizer, found_inf);
  counts_.advance(found_inf);
  bool any = false;
  for (FusedBatch& batch : batches_) {
    if (batch.parameters.empty()) continue;
    any = true;
    update_batch(rule_, optimizer.param_groups()[batch.group].options(), batch, rate_for(optimizer, batch),
                 found_inf.defined() ? found_inf.to(batch.device, /*non_blocking=*/true) : found_inf);
  }
  if (any && !in_loop_.empty()) step_loop(optimizer);
  clear();
  return any;
}

FusedUpdate::FusedUpdate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FusedUpdate::~FusedUpdate() = default;

std::unique_ptr<FusedUpdate> FusedUpdate::make(const optim::Optimizer& optimizer, c10::DeviceType device) {
  const UpdateRule rule = update_rule(optimizer);
  if (rule == UpdateRule::Unknown) return nullptr;
  return std::unique_ptr<FusedUpdate>(new FusedUpdate(std::make_unique<Impl>(rule, device)));
}

void FusedUpdate::take_rates(const optim::Optimizer& optimizer) { impl_->take_rates(optimizer); }

bool FusedUpdate::can_skip(optim::Optimizer& optimizer) { return impl_->can_skip(optimizer); }

bool FusedUpdate::step(optim::Optimizer& optimizer, const at::Tensor& found_inf) {
  return impl_->step(optimizer, found_inf);
}

void FusedUpdate::give_counts(optim::Optimizer& optimizer) { impl_->give_counts(optimizer); }

std::string FusedUpdate::why_not_captured() const { return impl_->why_not_captured(); }

}  // namespace lockstep::detail
