#include "lockstep/strategy/optimizer/update/fused_batch.h"

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

c10::optional<at::Tensor> defined_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt;
}

void update_sgd(const torch::optim::SGDOptions& options, FusedBatch& batch, const at::Tensor& rate,
                const at::Tensor& found_inf) {
  const auto update = [&](const auto& at_rate) {
    at::_fused_sgd_(batch.parameters, batch.gradients, batch.fields[0], options.weight_decay(), options.momentum(),
                    at_rate, options.dampening(), options.nesterov(), /*maximize=*/false, batch.is_first,
                    /*grad_scale=*/c10::nullopt, defined_or_none(found_inf));
  };
  rate.defined() ? update(rate) : update(options.lr());
}

/// `Options` is AdamOptions or AdamWOptions.
template <class Options>
void update_adam(const Options& options, FusedBatch& batch, const at::Tensor& rate, const at::Tensor& found_inf) {
  const auto [beta1, beta2] = options.betas();
  const auto update = [&, beta1 = beta1, beta2 = beta2](const auto& at_rate) {
    const auto call = [&](auto function) {
      function(batch.parameters, batch.gradients, batch.fields[0], batch.fields[1], batch.fields[2], batch.counts,
               at_rate, beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false,
               /*grad_scale=*/c10::nullopt, defined_or_none(found_inf));
    };
    if constexpr (std::is_same_v<Options, torch::optim::AdamWOptions>) {
      call([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      call([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  };
  rate.defined() ? update(rate) : update(options.lr());
}

/// The gradients, with those of weight decay.
Tensors decayed(const FusedBatch& batch, double weight_decay) {
  if (weight_decay == 0) return batch.gradients;
  return at::_foreach_add(batch.gradients, batch.parameters, weight_decay);
}

void update_rmsprop(const torch::optim::RMSpropOptions& options, FusedBatch& batch, const at::Tensor& rate) {
  const Tensors gradients = decayed(batch, options.weight_decay());
  auto& [square_average, momentum, average] = batch.fields;
  at::_foreach_mul_(square_average, options.alpha());
  at::_foreach_addcmul_(square_average, gradients, gradients, 1 - options.alpha());
  Tensors divisor;
  if (options.centered()) {
    at::_foreach_mul_(average, options.alpha());
    at::_foreach_add_(average, gradients, 1 - options.alpha());
    divisor = at::_foreach_addcmul(square_average, average, average, -1);
    at::_foreach_sqrt_(divisor);
  } else {
    divisor = at::_foreach_sqrt(square_average);
  }
  at::_foreach_add_(divisor, options.eps());
  Tensors change;
  if (options.momentum() > 0) {
    at::_foreach_mul_(momentum, options.momentum());
    at::_foreach_addcdiv_(momentum, gradients, divisor, 1);
    change = at::_foreach_mul(momentum, rate);
  } else {
    change = at::_foreach_div(gradients, divisor);
    at::_foreach_mul_(change, rate);
  }
  at::_foreach_sub_(batch.parameters, change);
}

void update_adagrad(const torch::optim::AdagradOptions& options, FusedBatch& batch, const at::Tensor& rate) {
  const Tensors gradients = decayed(batch, options.weight_decay());
  Tensors& sum = batch.fields[0];
  at::_foreach_addcmul_(sum, gradients, gradients, 1);
  Tensors divisor = at::_foreach_sqrt(sum);
  at::_foreach_add_(divisor, options.eps());
  Tensors change = at::_foreach_div(gradients, divisor);
  if (options.lr_decay() == 0) {
    at::_foreach_mul_(change, rate);
  } else {
    const at::Tensor before = at::stack(batch.counts).to(batch.dtype).sub_(1);
    at::_foreach_mul_(change, (rate / before.mul_(options.lr_decay()).add_(1)).unbind());
  }
  at::_foreach_sub_(batch.parameters, change);
}

}  // namespace

void FusedBatch::clear() {
  parameters.clear();
  gradients.clear();
  for (Tensors& field : fields) field.clear();
  counts.clear();
}

std::optional<at::ScalarType> dtype_of_rate(UpdateRule rule, at::ScalarType parameters) {
  if (rule == UpdateRule::Rmsprop || rule == UpdateRule::Adagrad) return parameters;
  if (parameters == at::kDouble) return std::nullopt;  // the fused functions take rates in float32
  return at::kFloat;
}

bool has_fused_functions(UpdateRule rule, at::ScalarType parameters) {
  if (parameters == at::kFloat || parameters == at::kDouble) return true;
  // The others would round the rate to the narrow type.
  const bool takes_float_rate = rule == UpdateRule::Sgd || rule == UpdateRule::Adam || rule == UpdateRule::AdamW;
  return takes_float_rate && (parameters == at::kHalf || parameters == at::kBFloat16);
}

void update_batch(UpdateRule rule, const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const at::Tensor& rate, const at::Tensor& found_inf) {
  using namespace torch::optim;
  switch (rule) {
    case UpdateRule::Sgd:
      return update_sgd(static_cast<const SGDOptions&>(options), batch, rate, found_inf);
    case UpdateRule::Adam:
      return update_adam(static_cast<const AdamOptions&>(options), batch, rate, found_inf);
    case UpdateRule::AdamW:
      return update_adam(static_cast<const AdamWOptions&>(options), batch, rate, found_inf);
    case UpdateRule::Rmsprop:
      return update_rmsprop(static_cast<const RMSpropOptions&>(options), batch, rate);
    case UpdateRule::Adagrad:
      return update_adagrad(static_cast<const AdagradOptions&>(options), batch, rate);
    case UpdateRule::Unknown:
      break;
  }
  LOCKSTEP_ASSERT(false, "optimizer of unknown rule");
}

}  // namespace lockstep::detail
