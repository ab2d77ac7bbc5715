#include "lockstep/strategy/optimizer/exchange/central_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {
namespace {

/// On the CPU in page-locked memory.
at::Tensor staging_for(const at::Tensor& tensor, c10::Device device) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false).device(device).pinned_memory(device.is_cpu()));
}

/// Copies the rows of a sparse gradient in the order of the calling thread's stream.
at::Tensor fetch_rows(const at::Tensor& gradient, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto fetched = [&](const at::Tensor& part) {
    return staging_for(part, device).copy_(part, /*non_blocking=*/true);
  };
  return at::_sparse_coo_tensor_unsafe(fetched(gradient._indices()), fetched(gradient._values()), gradient.sizes());
}

}  // namespace

CentralExchange::CentralExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                                 const ReplicaParameters& parameters, const std::vector<CentralTensor>& central)
    : replica_(replica),
      parameters_(parameters),
      central_(central),
      local_(strategy, replica, num_replicas, parameters),
      staging_(parameters.parameters.size()) {}

ExchangeScope CentralExchange::scope() const { return local_.scope(); }

GradientBuckets* CentralExchange::begin_backward(GradientBuckets* after) {
  check_memory();
  if (buckets_) buckets_->begin();
  return after;
}

void CentralExchange::abandon_backward() {
  if (buckets_) buckets_->abandon();
}

bool CentralExchange::finish_buckets() {
  if (!buckets_ || !buckets_->is_begun()) return false;
  buckets_->finish();
  for (const size_t p : buckets_->filled_with_zeros()) parameters_.parameters[p].mutable_grad().reset();
  return true;
}

void CentralExchange::reduce(ReducedGradients& reduced) {
  finish_buckets();
  local_.reduce(reduced);
}

void CentralExchange::sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) {
  local_.sum(present, skip, reduced);
}

/// In the order of the calling thread's stream.
void CentralExchange::fetch(const at::Tensor& gradient, size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& stored = parameters_.stored[parameter];
  at::Tensor& staging = staging_[parameter];
  if (!staging.defined()) staging = staging_for(stored, stored.device());
  staging.copy_(gradient, /*non_blocking=*/true);
}

at::Tensor CentralExchange::fetched_gradient(size_t parameter, bool copied) {
  const c10::Device device = parameters_.stored[parameter].device();
  at::Tensor gradient = exchanged_gradient(parameters_, parameter);
  if (!gradient.defined() || gradient.device() == device) return gradient;
  if (gradient.is_sparse()) return fetch_rows(gradient, device);
  if (!copied || !buckets_->holds(parameter)) fetch(gradient, parameter);
  return staging_[parameter];
}

/// Outside of a run replaced memory is stored before the next one.
void CentralExchange::check_memory() const {
  for (size_t p = 0; p < central_.size(); ++p) {
    LOCKSTEP_CHECK_VALUE(parameters_.parameters[p].data_ptr() == central_[p].seen(replica_).data_ptr(),
                         "[optimizer] the memory of a parameter that is stored once was replaced inside the function ",
                         "given to `run`: parameter=", parameters_.name(p),
                         "; write its values in place (copy_), or call set_data between two runs");
  }
}

ReplicaGradients CentralExchange::publish(const ReducedGradients& reduced) {
  check_memory();
  const bool copied = finish_buckets();
  ReplicaGradients published;
  published.reserve(parameters_.parameters.size());
  for (size_t p = 0; p < parameters_.parameters.size(); ++p) {
    published.add_parameter(parameters_.can_be_sharded(p) ? parameters_.stored[p] : at::Tensor(),
                            fetched_gradient(p, copied), reduced.is_sum(p));
  }
  if (parameters_.computes_elsewhere()) wait_for_stream(parameters_.parameters[0].device());
  return published;
}

void CentralExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  local_.collective(operation, published, work);
}

void CentralExchange::refresh(ParameterRange updated) {
  for (size_t p = updated.begin; p < updated.end; ++p) central_[p].refresh(replica_, /*in_background=*/true);
}

void CentralExchange::finish_step(const std::vector<char>& present) {
  if (!parameters_.computes_elsewhere() || buckets_) return;
  buckets_ = make_buckets(parameters_.parameters, present, [this](const std::vector<size_t>& bucket) {
    for (const size_t p : bucket) fetch(exchanged_gradient(parameters_, p), p);
  });
}

}  // namespace lockstep::detail
