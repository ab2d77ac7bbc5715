#include <algorithm>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/exchange/clip_gradients.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/gradient_weight.h"
#include "lockstep/strategy/optimizer/loss_scale.h"
#include "lockstep/strategy/optimizer/loss_scaler.h"
#include "lockstep/strategy/optimizer/mean_loss.h"
#include "lockstep/strategy/optimizer/optimizer_core.h"
#include "lockstep/strategy/optimizer/optimizer_core_state.h"
#include "lockstep/strategy/optimizer/without_autocast.h"
#include "lockstep/strategy/replay/used_graphs.h"

namespace lockstep::detail {
namespace {

/// One optimizer of a step, on the replica that makes it.
struct Member {
  OptimizerCoreState& state;
  OptimizerReplica& replica;
};

/// A step of several optimizers on one replica.
class JointStep {
 public:
  JointStep(const std::vector<OptimizerCoreState*>& states, const char* operation);

  void minimize(const at::Tensor& loss, const MinimizeOptions& options);
  void accumulate(const at::Tensor& loss, const MinimizeOptions& options);
  void apply(const MinimizeOptions& options);

 private:
  void check_members() const;
  void check_clips(const MinimizeOptions& options) const;
  comm::CollectiveOwner owner(const Member& member) const { return member.state.owner(operation_); }
  int replica() const { return members_[0].replica.index; }
  bool averages() const;
  /// Whether whole sums of gradients are looked at before the update.
  static bool needs_whole_sums(const MinimizeOptions& options) {
    return options.clip_norm || options.clip_value || options.scaler != nullptr;
  }
  bool needs_own_gradients(const MinimizeOptions& options) const { return options.scaler != nullptr || averages(); }

  std::optional<StepScale> scale_for(const MinimizeOptions& options) const;
  /// Sets what backward multiplies gradients with; false where this replica takes no part.
  bool begin_loss(const at::Tensor& loss, const std::optional<StepScale>& scale,
                  std::vector<at::Tensor>& of_loss) const;
  void backward(const at::Tensor& loss, const std::optional<StepScale>& scale) const;
  void separate() const;
  void check_accumulated(const MinimizeOptions& options) const;
  void update(const MinimizeOptions& options, const std::optional<StepScale>& scale) const;
  /// Whether gradients are finite, as far as the host knows, and the flag on the device that says that they are not.
  struct Decision {
    bool updates = true;
    at::Tensor found_inf = {};
  };
  Decision prepare(const MinimizeOptions& options, const std::optional<StepScale>& scale) const;
  Decision unscaled(const MinimizeOptions& options, const StepScale& scale, std::vector<at::Tensor>& numbers) const;
  void drop_gradients() const;
  /// After an exception.
  void abandon() const;

  const char* const operation_;
  std::vector<Member> members_;
};

/// Backward reaches what was given last first, so its gradients are sent first.
JointStep::JointStep(const std::vector<OptimizerCoreState*>& states, const char* operation) : operation_(operation) {
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (current_frame() == nullptr && !(*state)->has_stepped) (*state)->before_run();
    members_.push_back({**state, (*state)->current_replica(operation)});
  }
  check_members();
  for (const Member& member : members_) member.state.check_plan(member.replica);
}

void JointStep::check_members() const {
  LOCKSTEP_CHECK_VALUE(!members_.empty(), "[", operation_, "] at least one optimizer is needed");
  if (members_.size() == 1) return;
  std::unordered_set<const c10::TensorImpl*> known;
  for (const Member& member : members_) {
    LOCKSTEP_CHECK_VALUE(member.state.strategy == members_[0].state.strategy, "[", operation_,
                         "] all optimizers must be made under one strategy: ", member.state.strategy->type_name(),
                         " and another ", members_[0].state.strategy->type_name());
    LOCKSTEP_CHECK_VALUE(member.state.gradients == members_[0].state.gradients, "[", operation_,
                         "] optimizers of one loss must all sum or all average gradients; make all of them with ",
                         "Gradients::Mean, or none");
    for (size_t p = 0; p < member.replica.tensors.parameters.size(); ++p) {
      LOCKSTEP_CHECK_VALUE(known.insert(member.replica.tensors.parameters[p].unsafeGetTensorImpl()).second, "[",
                           operation_,
                           "] two optimizers have the same parameter: parameter=", member.replica.tensors.name(p),
                           "; give each parameter to one of them");
    }
  }
}

void JointStep::check_clips(const MinimizeOptions& options) const {
  LOCKSTEP_CHECK_VALUE(!options.clip_norm || *options.clip_norm > 0, "[", operation_,
                       "] the norm must be positive: clip_norm=", options.clip_norm.value_or(0));
  LOCKSTEP_CHECK_VALUE(!options.clip_value || *options.clip_value > 0, "[", operation_,
                       "] the limit must be positive: clip_value=", options.clip_value.value_or(0));
}

bool JointStep::averages() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.state.averages(); });
}

std::optional<StepScale> JointStep::scale_for(const MinimizeOptions& options) const {
  if (options.scaler == nullptr) return std::nullopt;
  return options.scaler->impl().begin_step(*members_[0].state.strategy, replica());
}

bool JointStep::begin_loss(const at::Tensor& loss, const std::optional<StepScale>& scale,
                           std::vector<at::Tensor>& of_loss) const {
  const OptimizerCoreState& first = members_[0].state;
  if (averages()) {
    const comm::CollectiveOwnerScope as_owner(owner(members_[0]));
    const GradientWeight weight = gradient_weight(*first.strategy, replica(), loss);
    const at::Tensor factor = scale ? scale->times(weight.value) : weight.value;
    of_loss.push_back(factor.to(loss.scalar_type()).expand_as(loss));
    return !weight.is_zero;
  }
  if (first.has_several_replicas()) members_[0].state.warn_of_mean(loss);
  if (scale) {
    LOCKSTEP_CHECK_VALUE(loss.numel() == 1, "[", operation_, "] a loss must be one number: shape=", loss.sizes(),
                         "; see average_loss");
    of_loss.push_back(scale->like(loss));
  }
  return true;
}

/// Gradients of other parameters stay as they are: they belong to other losses.
void JointStep::backward(const at::Tensor& loss, const std::optional<StepScale>& scale) const {
  const trace::Span span(trace::Phase::Backward, "backward");
  std::vector<at::Tensor> inputs;
  for (const Member& member : members_) {
    for (const at::Tensor& parameter : member.replica.tensors.parameters) {
      if (parameter.requires_grad()) inputs.push_back(parameter);
    }
  }
  std::vector<at::Tensor> of_loss;
  const bool takes_part = begin_loss(loss, scale, of_loss) && !inputs.empty();
  // Without a graph LibTorch says so.
  if (!takes_part && loss.requires_grad()) return;
  torch::autograd::backward({loss}, of_loss, /*retain_graph=*/{}, /*create_graph=*/false, inputs);
  UsedGraphs::note(loss);
}

/// Another backward adds in place, and each exchange writes its gradients in place. Those that are being sent have
/// memory of their own, and sums.
void JointStep::separate() const {
  std::vector<at::Tensor> parameters;
  for (const Member& member : members_) {
    for (size_t p = 0; p < member.replica.tensors.parameters.size(); ++p) {
      if (member.replica.is_in_flight(p) || member.replica.reduced.is_sum(p)) continue;
      parameters.push_back(member.replica.tensors.parameters[p]);
    }
  }
  separate_gradients(parameters);
}

/// On devices the host reads the flag only where an optimizer cannot skip its update there.
JointStep::Decision JointStep::unscaled(const MinimizeOptions& options, const StepScale& scale,
                                        std::vector<at::Tensor>& numbers) const {
  LossScale& known = options.scaler->impl();
  if (!scale.on_device.defined()) {
    unscale(numbers, scale.on_host);
    const bool finite = all_finite(numbers).item<bool>();
    known.end_step(replica(), finite);
    return {finite};
  }
  const at::Tensor found_inf = unscale(numbers, scale.on_device);
  const bool can_skip = std::all_of(members_.begin(), members_.end(),
                                    [](const Member& member) { return member.state.can_skip(member.replica); });
  known.end_step(replica(), found_inf, /*is_read=*/!can_skip);
  if (can_skip) return {true, found_inf};
  return {found_inf.item<float>() == 0};
}

JointStep::Decision JointStep::prepare(const MinimizeOptions& options, const std::optional<StepScale>& scale) const {
  Decision decision;
  if (!needs_whole_sums(options)) return decision;
  std::vector<OptimizerGradients> gradients;
  for (const Member& member : members_) {
    const comm::CollectiveOwnerScope as_owner(owner(member));
    member.replica.exchange->reduce(member.replica.reduced);
    gradients.push_back({member.replica.tensors, member.replica.reduced});
  }
  std::vector<at::Tensor> numbers = gradient_numbers(gradients);
  if (scale) decision = unscaled(options, *scale, numbers);
  if (!decision.updates) return decision;
  if (options.clip_value) clip_values(numbers, *options.clip_value);
  if (options.clip_norm) clip_norm(numbers, *options.clip_norm);
  return decision;
}

void JointStep::update(const MinimizeOptions& options, const std::optional<StepScale>& scale) const {
  {
    const trace::Span span(trace::Phase::Update, "update");
    const Decision decision = prepare(options, scale);
    for (const Member& member : members_) {
      if (!decision.updates) break;
      const comm::CollectiveOwnerScope as_owner(owner(member));
      member.state.update(member.replica, decision.found_inf);
    }
  }
  trace::count_step();
}

void JointStep::drop_gradients() const {
  for (const Member& member : members_) member.replica.drop_gradients();
}

void JointStep::abandon() const {
  for (const Member& member : members_) {
    member.replica.exchange->abandon_backward();
    if (member.replica.divided) member.replica.divided->abandon_backward();
  }
  drop_gradients();
}

void JointStep::minimize(const at::Tensor& loss, const MinimizeOptions& options) {
  const WithoutAutocast uncast(/*drops_copies=*/true);
  check_clips(options);
  const std::optional<StepScale> scale = scale_for(options);
  drop_gradients();
  try {
    GradientBuckets* last = nullptr;
    for (const Member& member : members_) {
      const comm::CollectiveOwnerScope as_owner(owner(member));
      const bool scatters = member.replica.scatters() && !needs_whole_sums(options);
      last = scatters ? member.replica.divided->begin_backward(last) : member.replica.exchange->begin_backward(last);
    }
    backward(loss, scale);
    if (members_.size() > 1) separate();
    update(options, scale);
  } catch (...) {
    abandon();
    throw;
  }
  drop_gradients();
}

void JointStep::accumulate(const at::Tensor& loss, const MinimizeOptions& options) {
  const WithoutAutocast uncast(/*drops_copies=*/false);
  LOCKSTEP_CHECK_VALUE(!options.clip_norm && !options.clip_value,
                       "[accumulate] sums are clipped, not their parts; give clip_norm and clip_value to apply()");
  std::optional<StepScale> scale = scale_for(options);
  // An update changes it in place.
  if (scale && scale->on_device.defined()) scale->on_device = scale->on_device.clone();
  if (needs_own_gradients(options)) {
    for (const Member& member : members_) {
      const auto& accumulated = member.replica.accumulated;
      LOCKSTEP_CHECK_VALUE(!accumulated || accumulated->scale.has_value() == scale.has_value(),
                           "[accumulate] all losses of an update need the same scaler, or none");
      member.replica.check_accumulated(operation_);
      if (accumulated) scale = accumulated->scale;
    }
  } else {
    for (const Member& member : members_) member.replica.check_plain(operation_);
  }
  try {
    backward(loss, scale);
    separate();
    for (const Member& member : members_) member.replica.note_accumulated(scale, averages());
  } catch (...) {
    abandon();
    throw;
  }
}

void JointStep::check_accumulated(const MinimizeOptions& options) const {
  for (const Member& member : members_) {
    if (!needs_own_gradients(options)) {
      member.replica.check_plain(operation_);
      continue;
    }
    const auto& accumulated = member.replica.accumulated;
    LOCKSTEP_CHECK_VALUE(accumulated, "[apply] with Gradients::Mean or a scaler, gradients must be those that ",
                         "accumulate() computed; call accumulate(loss) first");
    LOCKSTEP_CHECK_VALUE(accumulated->scale.has_value() == (options.scaler != nullptr) &&
                             accumulated->scale == members_[0].replica.accumulated->scale,
                         "[apply] needs the scaler that accumulate() was given, and the same optimizers");
    member.replica.check_accumulated(operation_);
  }
}

void JointStep::apply(const MinimizeOptions& options) {
  const WithoutAutocast uncast(/*drops_copies=*/true);
  check_clips(options);
  try {
    check_accumulated(options);
    update(options, options.scaler != nullptr ? members_[0].replica.accumulated->scale : std::nullopt);
  } catch (...) {
    abandon();
    throw;
  }
  drop_gradients();
}

}  // namespace

/// Looks at the first losses, and warns once.
void OptimizerCoreState::warn_of_mean(const at::Tensor& loss) {
  constexpr int kLosses = 64;
  if (num_checked_losses.load(std::memory_order_relaxed) >= kLosses) return;
  const bool is_mean = is_mean_loss(loss);
  const int before = num_checked_losses.fetch_add(is_mean ? kLosses : 1);
  if (is_mean && before < kLosses) warn_of_mean_loss(strategy->num_replicas_in_sync());
}

std::vector<OptimizerCoreState*> OptimizerCore::states_of(c10::ArrayRef<OptimizerCore*> optimizers) {
  std::vector<OptimizerCoreState*> states;
  for (const OptimizerCore* optimizer : optimizers) states.push_back(optimizer->state_.get());
  return states;
}

void OptimizerCore::minimize(c10::ArrayRef<OptimizerCore*> optimizers, const at::Tensor& loss,
                             const MinimizeOptions& options) {
  JointStep(states_of(optimizers), "minimize").minimize(loss, options);
}

void OptimizerCore::accumulate(c10::ArrayRef<OptimizerCore*> optimizers, const at::Tensor& loss,
                               const MinimizeOptions& options) {
  JointStep(states_of(optimizers), "accumulate").accumulate(loss, options);
}

void OptimizerCore::apply(c10::ArrayRef<OptimizerCore*> optimizers, const MinimizeOptions& options) {
  JointStep(states_of(optimizers), "apply").apply(options);
}

}  // namespace lockstep::detail
