#include "lockstep/strategy/component_write.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep::detail {

void write_component(Write write, at::Tensor component, const at::Tensor& value) {
  LOCKSTEP_CHECK_VALUE(value.dim() == 0 || value.sizes() == component.sizes(),
                       "[Variable] the value must have the variable's shape: variable=", component.sizes(),
                       ", value=", value.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor own = value.to(component.device(), component.scalar_type());
  if (write == Write::kAssign) component.copy_(own);
  if (write == Write::kAdd) component.add_(own);
  if (write == Write::kSub) component.sub_(own);
}

namespace {

void write_row(RowWrite write, at::Tensor row, const at::Tensor& value) {
  if (write == RowWrite::kMul) row.mul_(value);
  if (write == RowWrite::kDiv) row.div_(value);
  if (write == RowWrite::kMin) row.copy_(at::minimum(row, value));
  if (write == RowWrite::kMax) row.copy_(at::maximum(row, value));
}

/// Row after row, because the same row may be named twice.
void write_each_row(RowWrite write, at::Tensor component, const IndexedSlices& rows) {
  const at::Tensor indices = rows.indices.to(at::kCPU, at::kLong);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto index = indices[i].item<int64_t>();
    LOCKSTEP_CHECK_INDEX(index >= 0 && index < component.size(0), "[Variable] there is no such row: row=", index,
                         ", rows=", component.size(0));
    write_row(write, component[index], rows.values[i]);
  }
}

}  // namespace

void write_rows(RowWrite write, at::Tensor component, const IndexedSlices& given) {
  const at::NoGradGuard no_grad;
  const IndexedSlices rows{given.indices.to(component.device(), at::kLong),
                           given.values.to(component.device(), component.scalar_type()), given.dense_shape};
  switch (write) {
    case RowWrite::kAdd:
      component.index_add_(0, rows.indices, rows.values);
      return;
    case RowWrite::kSub:
      component.index_add_(0, rows.indices, rows.values, -1);
      return;
    case RowWrite::kMul:
    case RowWrite::kDiv:
    case RowWrite::kMin:
    case RowWrite::kMax:
      return write_each_row(write, component, rows);
    case RowWrite::kUpdate:
      component.index_copy_(0, rows.indices, rows.values);
  }
}

void check_has_sum(const Variable::Impl& variable, const VariableOperand& value) {
  LOCKSTEP_CHECK_VALUE(
      !value.is_literal() || value.at(0).item().toDouble() == 0.0,
      "[Variable] a number is the same on all replicas and cannot be summed over them: name=", variable.options.name,
      ", value=", value.at(0).item(), "; pass a tensor for each replica's own part");
}

}  // namespace lockstep::detail
