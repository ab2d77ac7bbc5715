#pragma once

#include <ATen/core/Tensor.h>

/// Internal: LibTorch's batch normalization in replicas of strategies with several, where statistics are to be those of
/// all replicas.
namespace lockstep::detail {

/// A call of LibTorch's function in training mode. Tensors that it has none of are undefined.
struct BatchNormCall {
  at::Tensor input, weight, bias, running_mean, running_var;
  double momentum = 0;
  double eps = 0;
};

/// Computes with the statistics of all replicas. Returns an undefined tensor where the calling thread's replica is the
/// only one, or where it is in none.
using SynchronisedBatchNorm = at::Tensor (*)(const BatchNormCall&);

/// Replaces `torch::batch_norm` on threads of replicas, for tensors that are marked.
///
/// Users' classes call `forward` of LibTorch's modules, which is not virtual. A module is therefore recognized by the
/// tensors that it calls the function with. A mark belongs to the tensor itself (its TensorImpl), not to its memory: it
/// stays where values, memory, dtype or device change, and ends with the tensor.
class BatchNormOverride {
 public:
  /// Registers the function with LibTorch. Called before the first run, while few threads compute.
  static void prepare();

  /// Sets what calls with marked tensors are replaced by.
  static void set_function(SynchronisedBatchNorm function);

  /// Undefined tensors are ignored.
  static void mark(const at::Tensor& tensor);
  static bool is_marked(const at::Tensor& tensor);
  /// Marks `copy` if `tensor` is marked.
  static void carry_mark(const at::Tensor& tensor, const at::Tensor& copy);

  /// Whether replicas on devices other than CPUs need kModeKey: whether any tensor has been marked.
  static bool is_used();
};

}  // namespace lockstep::detail
