#pragma once

#include <cstdint>
#include <memory>
#include <ostream>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/module.h"

/// Synchronised batch normalization: in training mode inside `run`, the mean and variance are those of the rows of all
/// replicas of all workers, as if one device had the whole batch.
///
///     auto model = ls::module<ResNet>(50);
///     ls::nn::convert_sync_batch_norm(model);
///
/// Replicas may have different numbers of rows, also none. All replicas update the running statistics alike. All must
/// call the layer, and its backward pass. Evaluation, one replica, and calls outside of `run` are LibTorch's own.
/// Second derivatives are an error. With `Gradients::Mean` a replica without rows makes no backward pass, which is a
/// CollectiveError: sum the gradients there (`average_loss`).
namespace lockstep::nn {

/// BatchNorm1d that synchronises. Options, parameters, buffers and their names are the same, so checkpoints of one can
/// be loaded into the other. A batch of one value for each channel is an error if no replica has more.
class LOCKSTEP_API SyncBatchNorm1dImpl : public torch::nn::BatchNorm1dImpl {
 public:
  explicit SyncBatchNorm1dImpl(const torch::nn::BatchNormOptions& options);

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(const c10::optional<c10::Device>& device = c10::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(SyncBatchNorm1d);

/// The same for BatchNorm2d.
class LOCKSTEP_API SyncBatchNorm2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  explicit SyncBatchNorm2dImpl(const torch::nn::BatchNormOptions& options);

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(const c10::optional<c10::Device>& device = c10::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(SyncBatchNorm2d);

/// The same for BatchNorm3d.
class LOCKSTEP_API SyncBatchNorm3dImpl : public torch::nn::BatchNorm3dImpl {
 public:
  explicit SyncBatchNorm3dImpl(const torch::nn::BatchNormOptions& options);

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(const c10::optional<c10::Device>& device = c10::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(SyncBatchNorm3d);

/// Lets all BatchNorm1d, BatchNorm2d and BatchNorm3d inside a module synchronise, from then on and in place: also those
/// that are members of users' classes. Returns how many it has converted; those that synchronise already do not count.
/// A module without any of them gives a warning in the log.
///
/// For modules that are made in the function of `module_from`. A layer is recognized by its tensors: values, dtype and
/// device may change, but a clone that a program makes is an ordinary layer, and so is one whose tensors a program
/// replaces. A layer without weight and without running statistics cannot be recognized and is an error. LibTorch
/// itself refuses a replica's batch of one value for each channel (one row in BatchNorm1d); SyncBatchNorm1d takes it.
LOCKSTEP_API int64_t convert_sync_batch_norm(torch::nn::Module& module);

template <class Impl>
int64_t convert_sync_batch_norm(const torch::nn::ModuleHolder<Impl>& module) {
  return convert_sync_batch_norm(static_cast<torch::nn::Module&>(*module.ptr()));
}

namespace detail {
LOCKSTEP_API int64_t convert_sync_batch_norm(lockstep::detail::ModuleReplicas& replicas);
}

/// The same for all replicas; returns the number of layers of one. Called outside of `run`, by every worker. Tensors
/// that a program replaces in the first replica are recognized at the next run. Their statistics get BufferRule::First.
template <class M>
int64_t convert_sync_batch_norm(const Module<M>& model) {
  return detail::convert_sync_batch_norm(*model.replicas());
}

}  // namespace lockstep::nn
