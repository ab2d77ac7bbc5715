#include "lockstep/nn/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/nn/marked_norms.h"
#include "lockstep/nn/synchronised_batch_norm.h"

namespace torch::nn {

// Classes that derive from LibTorch's need them to link, and not every LibTorch exports them. They are overridden here.
#define LOCKSTEP_PRINT_BATCH_NORM(D)                                                         \
  template <>                                                                                \
  void BatchNormImplBase<D, BatchNorm##D##dImpl>::pretty_print(std::ostream& stream) const { \
    stream << "torch::nn::BatchNorm" << D << "d(" << this->options.num_features() << ")";    \
  }

LOCKSTEP_PRINT_BATCH_NORM(1)
LOCKSTEP_PRINT_BATCH_NORM(2)
LOCKSTEP_PRINT_BATCH_NORM(3)

#undef LOCKSTEP_PRINT_BATCH_NORM

}  // namespace torch::nn

namespace lockstep::nn {
namespace {

/// What LibTorch's modules do in training mode, up to the call of the function.
template <class Impl>
at::Tensor forward_in_training(Impl& impl, const at::Tensor& input) {
  double factor = impl.options.momentum() ? *impl.options.momentum() : 0.0;
  if (impl.is_training() && impl.options.track_running_stats() && impl.num_batches_tracked.defined()) {
    impl.num_batches_tracked += 1;
    if (!impl.options.momentum()) factor = 1.0 / impl.num_batches_tracked.template item<double>();
  }
  return detail::synchronised_batch_norm(
      {input, impl.weight, impl.bias, impl.running_mean, impl.running_var, factor, impl.options.eps()});
}

template <class Impl>
bool synchronises(const Impl& impl) {
  const bool training = impl.is_training() || !impl.options.track_running_stats();
  return training && detail::is_in_one_of_several_replicas();
}

template <class Impl>
std::shared_ptr<torch::nn::Module> clone_as(const Impl& impl, const torch::nn::Module& plain) {
  const at::NoGradGuard no_grad;
  auto made = std::make_shared<Impl>(impl.options);
  const auto take = [](const auto& from, const auto& to) {
    for (const auto& item : from) {
      at::Tensor target = to[item.key()];
      target.set_data(item.value());
      target.set_requires_grad(item.value().requires_grad());
    }
  };
  take(plain.named_parameters(/*recurse=*/false), made->named_parameters(/*recurse=*/false));
  take(plain.named_buffers(/*recurse=*/false), made->named_buffers(/*recurse=*/false));
  made->train(impl.is_training());
  return made;
}

void print_as(const char* name, const torch::nn::BatchNormOptions& options, std::ostream& stream) {
  stream << std::boolalpha << "lockstep::nn::" << name << "(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
}

}  // namespace

#define LOCKSTEP_SYNC_BATCH_NORM(D)                                                                                   \
  SyncBatchNorm##D##dImpl::SyncBatchNorm##D##dImpl(const torch::nn::BatchNormOptions& options)                        \
      : torch::nn::BatchNorm##D##dImpl(options) {                                                                     \
    detail::mark_norm(*this);                                                                                         \
  }                                                                                                                   \
                                                                                                                      \
  at::Tensor SyncBatchNorm##D##dImpl::forward(const at::Tensor& input) {                                              \
    if (!synchronises(*this)) return torch::nn::BatchNorm##D##dImpl::forward(input);                                  \
    _check_input_dim(input);                                                                                          \
    return forward_in_training(*this, input);                                                                         \
  }                                                                                                                   \
                                                                                                                      \
  void SyncBatchNorm##D##dImpl::reset() {                                                                             \
    torch::nn::BatchNorm##D##dImpl::reset();                                                                          \
    detail::mark_norm(*this);                                                                                         \
  }                                                                                                                   \
                                                                                                                      \
  std::shared_ptr<torch::nn::Module> SyncBatchNorm##D##dImpl::clone(const c10::optional<c10::Device>& device) const { \
    return clone_as(*this, *torch::nn::BatchNorm##D##dImpl::clone(device));                                           \
  }                                                                                                                   \
                                                                                                                      \
  void SyncBatchNorm##D##dImpl::pretty_print(std::ostream& stream) const {                                            \
    print_as("SyncBatchNorm" #D "d", options, stream);                                                                \
  }

LOCKSTEP_SYNC_BATCH_NORM(1)
LOCKSTEP_SYNC_BATCH_NORM(2)
LOCKSTEP_SYNC_BATCH_NORM(3)

#undef LOCKSTEP_SYNC_BATCH_NORM

}  // namespace lockstep::nn
