#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/device_collectives.h"

namespace lockstep::comm {

/// The dtype as which an engine's own collectives reduce tensors: booleans are bytes.
at::ScalarType reduced_as(at::ScalarType dtype);

/// What one rank gives to an engine to reduce tensors of its GPU, and what it does with the results.
///
/// An engine knows sums, products, minima and maxima of plain memory. A mean is a sum and a division, a logical or the
/// maximum of bytes. Engines drop NaN in minima and maxima: where a rank has one, the result is NaN all the same.
class DeviceReduction {
 public:
  /// `outputs` is empty on ranks that get no result.
  DeviceReduction(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int num_ranks);

  /// One operation for each tensor, AllReduce or Reduce to `root`.
  std::vector<DeviceOperation> operations(DeviceOperation::Kind kind, int root) const;
  /// Of the rows of the one input, each rank gets its share.
  std::vector<DeviceOperation> scatter_operations(int rank) const;
  /// Queues what is done with the results, and writes the outputs.
  void finish();

 private:
  struct Item {
    at::Tensor input;
    /// Undefined where this rank gets no result.
    at::Tensor result;
    ReduceOp::Kind op;
    /// The number of the output; -1 for the NaN of the item before.
    int output;
  };
  void add(const at::Tensor& input, const at::Tensor& output, int index);
  static DeviceOperation operation_of(DeviceOperation::Kind kind, const Item& item, int root);

  ReduceOp op_;
  int num_ranks_;
  std::vector<at::Tensor> outputs_;
  std::vector<Item> items_;
};

}  // namespace lockstep::comm
