#pragma once

#include <ostream>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/options.h"

/// Internal: what Group checks before an engine gets a call.
namespace lockstep::comm {

/// The operation and the rank that errors name.
struct Where {
  const char* operation;
  const GroupImpl& group;
};

std::ostream& operator<<(std::ostream& out, const Where& where);

void check_tensors(const Where& where, at::TensorList tensors);
void check_dense(const Where& where, at::TensorList tensors);
void check_reducible(const Where& where, at::TensorList tensors, ReduceOp op);
void check_root(const Where& where, int root);
/// Checks `dim` against every tensor and returns it counted from the front.
int64_t check_dim(const Where& where, at::TensorList tensors, int64_t dim);
void check_implementation(const Where& where, at::TensorList tensors, const CommunicationOptions& options);
/// Checks split sizes and returns the rows of each tensor that each rank gets.
RowCounts rows_to_send(const Where& where, at::TensorList tensors, at::IntArrayRef split_sizes);

}  // namespace lockstep::comm
