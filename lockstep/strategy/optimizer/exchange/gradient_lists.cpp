#include "lockstep/strategy/optimizer/exchange/gradient_lists.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::detail {
namespace {

using TensorList = std::vector<at::Tensor>;

/// The tensors by device and dtype; complex ones as pairs of real numbers. Tensors without elements are left out.
std::vector<TensorList> alike(const TensorList& numbers) {
  std::vector<TensorList> lists;
  for (const at::Tensor& given : numbers) {
    if (given.numel() == 0) continue;
    const at::Tensor values = given.is_complex() ? at::view_as_real(given) : given;
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const TensorList& known) {
      return known[0].device() == values.device() && known[0].scalar_type() == values.scalar_type();
    });
    if (list == lists.end()) {
      lists.push_back({values});
    } else {
      list->push_back(values);
    }
  }
  return lists;
}

}  // namespace

bool are_lists_used(const std::vector<at::Tensor>& numbers) {
  return !numbers.empty() &&
         std::all_of(numbers.begin(), numbers.end(), [](const at::Tensor& values) { return values.is_cuda(); });
}

at::Tensor clip_norm_of_lists(std::vector<at::Tensor>& numbers, double max_norm) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorList> lists = alike(numbers);
  if (lists.empty()) return at::zeros({}, numbers[0].options().dtype(at::kFloat));
  const bool any_double = std::any_of(lists.begin(), lists.end(),
                                      [](const TensorList& list) { return list[0].scalar_type() == at::kDouble; });
  const at::ScalarType dtype = any_double ? at::kDouble : at::kFloat;  // norms of narrower types overflow
  TensorList norms;
  for (const TensorList& list : lists) {
    const bool is_narrow = c10::elementSize(list[0].scalar_type()) < c10::elementSize(at::kFloat);
    const TensorList each = at::_foreach_norm(list, 2, is_narrow ? std::optional(at::kFloat) : std::nullopt);
    norms.push_back(at::stack(each).to(dtype).to(numbers[0].device()));
  }
  const at::Tensor norm = (norms.size() == 1 ? norms[0] : at::cat(norms)).norm(2);
  const at::Tensor factor = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  for (const TensorList& list : lists) {
    at::_foreach_mul_(list, factor.to(list[0].options().requires_grad(false)));
  }
  return norm;
}

void clip_values_of_lists(std::vector<at::Tensor>& numbers, double max_value) {
  const at::NoGradGuard no_grad;
  for (const TensorList& list : alike(numbers)) {
    at::_foreach_clamp_min_(list, -max_value);
    at::_foreach_clamp_max_(list, max_value);
  }
}

}  // namespace lockstep::detail
