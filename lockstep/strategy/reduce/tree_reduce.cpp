#include "lockstep/strategy/reduce/tree_reduce.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {

at::ScalarType mean_type(at::ScalarType type) {
  if (!at::isIntegralType(type, /*includeBool=*/true)) return type;
  return c10::elementSize(type) <= 2 ? at::kFloat : at::kDouble;
}

void check_same_shapes(std::string_view operation, at::ArrayRef<at::Tensor> components) {
  LOCKSTEP_CHECK_VALUE(!components.empty(), "[", operation, "] a value without components cannot be reduced");
  for (size_t i = 1; i < components.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(
        components[i].sizes() == components[0].sizes() && components[i].scalar_type() == components[0].scalar_type(),
        "[", operation, "] all components must have one shape and dtype: component 0 is ", components[0].scalar_type(),
        components[0].sizes(), ", component ", i, " is ", components[i].scalar_type(), components[i].sizes(),
        "; for batches of different sizes give an axis");
  }
}

at::Tensor divide_for_mean(const at::Tensor& sum, double divisor) {
  return sum.to(mean_type(sum.scalar_type())).div(divisor);
}

std::vector<size_t> hierarchical_sources(size_t num_devices) {
  size_t half = 1;  // as the tree divides them
  while (2 * half < num_devices) half *= 2;
  std::vector<size_t> sources(num_devices, 0);
  for (size_t i = half + 1; i < num_devices; ++i) sources[i] = half;
  return sources;
}

at::Tensor tree_reduce(ReduceOp op, std::vector<at::Tensor> tensors) {
  const at::ScalarType type = tensors[0].scalar_type();
  const bool adds = op == ReduceOp::Sum || op == ReduceOp::Mean;
  const bool computes = adds || op == ReduceOp::Product;
  const bool widen = computes && tensors.size() > 1 && (type == at::kHalf || type == at::kBFloat16);
  LOCKSTEP_CHECK_VALUE(!adds || tensors.size() == 1 || type != at::kBool,
                       "[reduce] booleans cannot be added: dtype=bool; cast them to an integer type first");
  if (widen) {
    for (at::Tensor& tensor : tensors) tensor = tensor.to(at::kFloat);
  }
  for (size_t stride = 1; stride < tensors.size(); stride *= 2) {
    for (size_t i = 0; i + stride < tensors.size(); i += 2 * stride) {
      const at::Tensor other = tensors[i + stride].to(tensors[i].device());
      tensors[i] = adds                      ? tensors[i].add(other)
                   : op == ReduceOp::Product ? tensors[i].mul(other)
                   : op == ReduceOp::Min     ? at::minimum(tensors[i], other)
                                             : at::maximum(tensors[i], other);
    }
  }
  at::Tensor result = tensors[0];
  if (op == ReduceOp::Mean && tensors.size() > 1) result = divide_for_mean(result, static_cast<double>(tensors.size()));
  return widen ? result.to(type) : result;
}

}  // namespace lockstep::detail
