#include "lockstep/strategy/optimizer/exchange/gradient_weight.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/strategy/run_rows.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

GradientWeight gradient_weight(const StrategyImpl& strategy, int replica, const at::Tensor& like) {
  const at::NoGradGuard no_grad;
  const int64_t rows = rows_of_batch().value_or(1);
  // Compiled replicas may lack double precision, and all make the same calls.
  const bool is_compiled = like.device().type() == c10::DeviceType::XLA;
  const bool is_double = !is_compiled || c10::toRealValueType(like.scalar_type()) == at::kDouble;
  const at::TensorOptions options(is_double ? at::kDouble : at::kFloat);
  // A copy from the host would wait for a GPU.
  const at::Tensor here = like.is_cuda() ? at::full({}, static_cast<double>(rows), options.device(like.device()))
                                         : at::scalar_tensor(static_cast<double>(rows), options).to(like.device());
  const at::Tensor all = strategy.group(replica).all_reduce(here, ReduceOp::Sum);
  return {here / at::clamp_min(all, 1), !is_compiled && rows == 0};
}

at::Tensor weighted_gradient(const at::Tensor& parameter, at::Tensor gradient, const GradientWeight& weight) {
  if (!gradient.defined()) return gradient;
  if (weight.is_zero) {
    parameter.mutable_grad().reset();
    return {};
  }
  const at::NoGradGuard no_grad;
  at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
  values.mul_(weight.value.to(values.device(), c10::toRealValueType(values.scalar_type())));
  return gradient;
}

}  // namespace lockstep::detail
