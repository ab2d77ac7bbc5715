#include "lockstep/comm/device_reduction.h"

#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>

#include "lockstep/comm/group.h"

namespace lockstep::comm {
namespace {

at::Tensor as_reduced(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

/// The engine's operation for one of these numbers. Booleans are bytes of 0 and 1.
ReduceOp::Kind engine_op(ReduceOp op, at::ScalarType dtype) {
  if (dtype == at::kBool) return op == ReduceOp::Sum || op == ReduceOp::Max ? ReduceOp::Max : ReduceOp::Min;
  return op == ReduceOp::Mean ? ReduceOp::Sum : static_cast<ReduceOp::Kind>(op);
}

}  // namespace

at::ScalarType reduced_as(at::ScalarType dtype) { return dtype == at::kBool ? at::kByte : dtype; }

DeviceReduction::DeviceReduction(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int num_ranks)
    : op_(op), num_ranks_(num_ranks), outputs_(outputs.vec()) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    add(inputs[i].detach(), i < outputs_.size() ? outputs_[i].detach() : at::Tensor(), static_cast<int>(i));
  }
}

void DeviceReduction::add(const at::Tensor& input, const at::Tensor& output, int index) {
  const bool orders = op_ == ReduceOp::Min || op_ == ReduceOp::Max;
  const auto engine = engine_op(op_, input.scalar_type());
  const bool is_wide = op_ == ReduceOp::Mean && input.scalar_type() == at::kHalf;  // the sum may be infinite
  const at::Tensor given = (is_wide ? input.to(at::kFloat) : input).resolve_neg().contiguous();
  at::Tensor result = output;
  if (output.defined() && (is_wide || !output.is_contiguous() || output.is_neg())) {
    result = at::empty(output.sizes(), output.options().dtype(given.scalar_type()));
  }
  items_.push_back({as_reduced(given), result.defined() ? as_reduced(result) : result, engine, index});
  if (!orders || !at::isFloatingType(input.scalar_type())) return;
  const at::Tensor is_nan = at::isnan(input.contiguous()).view(at::kByte);
  const at::Tensor any_nan = output.defined() ? at::empty(output.sizes(), is_nan.options()) : at::Tensor();
  items_.push_back({is_nan, any_nan, ReduceOp::Max, -1});
}

DeviceOperation DeviceReduction::operation_of(DeviceOperation::Kind kind, const Item& item, int root) {
  return {.kind = kind,
          .input = item.input.data_ptr(),
          .output = item.result.defined() ? item.result.data_ptr() : nullptr,
          .count = static_cast<size_t>(item.input.numel()),
          .dtype = item.input.scalar_type(),
          .reduce_op = item.op,
          .peer = root};
}

std::vector<DeviceOperation> DeviceReduction::operations(DeviceOperation::Kind kind, int root) const {
  std::vector<DeviceOperation> operations;
  for (const Item& item : items_) operations.push_back(operation_of(kind, item, root));
  return operations;
}

std::vector<DeviceOperation> DeviceReduction::scatter_operations(int rank) const {
  std::vector<DeviceOperation> operations;
  for (const Item& item : items_) {
    const int64_t rows = item.input.size(0);
    const int64_t row_size = rows == 0 ? 0 : item.input.numel() / rows;
    if (rows % num_ranks_ == 0) {
      operations.push_back(operation_of(DeviceOperation::Kind::ReduceScatter, item, -1));
      operations.back().count = static_cast<size_t>(rows / num_ranks_ * row_size);
      continue;
    }
    for (int owner = 0; owner < num_ranks_; ++owner) {
      const RowShare share = row_share(rows, owner, num_ranks_);
      DeviceOperation part = operation_of(DeviceOperation::Kind::Reduce, item, owner);
      part.input = static_cast<const char*>(part.input) +
                   share.begin * row_size * static_cast<int64_t>(item.input.element_size());
      if (owner != rank) part.output = nullptr;
      part.count = static_cast<size_t>(share.count * row_size);
      operations.push_back(part);
    }
  }
  return operations;
}

void DeviceReduction::finish() {
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (!item.result.defined() || item.result.numel() == 0) continue;
    if (item.output < 0) {
      items_[i - 1].result.masked_fill_(item.result.view(at::kBool), std::numeric_limits<double>::quiet_NaN());
    } else if (op_ == ReduceOp::Mean) {
      sums.push_back(item.result);
    }
  }
  // LibTorch multiplies by the reciprocal of a number of the host, which rounds differently.
  for (at::Tensor& sum : sums) sum.div_(at::full({}, num_ranks_, sum.options()));
  for (const Item& item : items_) {
    if (item.output < 0 || !item.result.defined()) continue;
    const at::Tensor& output = outputs_[static_cast<size_t>(item.output)];
    if (item.result.is_alias_of(output)) continue;
    output.detach().copy_(output.scalar_type() == at::kBool ? item.result.view(at::kBool) : item.result);
  }
}

}  // namespace lockstep::comm
