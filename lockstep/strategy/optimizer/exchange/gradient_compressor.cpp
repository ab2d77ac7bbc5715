#include "lockstep/strategy/optimizer/exchange/gradient_compressor.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::detail {
namespace {

comm::RankGroups groups_of_workers(int num_workers, int replicas) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(num_workers));
  for (int rank = 0; rank < num_workers * replicas; ++rank)
    groups[static_cast<size_t>(rank / replicas)].push_back(rank);
  return comm::RankGroups(groups);
}

comm::RankGroups groups_between_workers(int num_workers, int replicas) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(replicas));
  for (int rank = 0; rank < num_workers * replicas; ++rank)
    groups[static_cast<size_t>(rank % replicas)].push_back(rank);
  return comm::RankGroups(groups);
}

}  // namespace

WorkerSums::WorkerSums(const comm::Group& all, int replicas_per_worker)
    : all_(all), replicas_per_worker_(replicas_per_worker) {
  if (replicas_per_worker == 1) return;
  in_worker_ = all.within(groups_of_workers(num_workers(), replicas_per_worker));
  between_workers_ = all.within(groups_between_workers(num_workers(), replicas_per_worker));
}

void WorkerSums::sum_in_worker(const std::vector<at::Tensor>& tensors) const {
  if (in_worker_) in_worker_->all_reduce_(tensors, ReduceOp::Sum);
}

at::Tensor WorkerSums::sum_over_workers(const at::Tensor& flat) const {
  if (!in_worker_) return all_.all_reduce(flat, ReduceOp::Sum);
  const int64_t replicas = replicas_per_worker_;
  const int64_t share = (flat.numel() + replicas - 1) / replicas;
  const at::Tensor padded = at::constant_pad_nd(flat, {0, share * replicas - flat.numel()});
  const at::Tensor own = padded.narrow(0, in_worker_->rank() * share, share);
  return in_worker_->all_gather(between_workers_->all_reduce(own, ReduceOp::Sum), 0).narrow(0, 0, flat.numel());
}

std::vector<at::Tensor> WorkerSums::of_workers(const at::Tensor& flat) const {
  const bool sends = !in_worker_ || in_worker_->rank() == 0;
  return all_.all_gather(sends ? flat : flat.narrow(0, 0, 0), 0).chunk(num_workers());
}

void GradientCompressor::sum(const WorkerSums& workers, const std::vector<GradientToSum>& gradients) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> as_they_are;
  std::vector<at::Tensor> to_compress;
  std::vector<GradientToSum> of_float, of_double;
  for (const GradientToSum& each : gradients) {
    const auto dtype = each.gradient.scalar_type();
    if ((dtype != at::kFloat && dtype != at::kDouble) || each.gradient.numel() == 0 || !takes(each)) {
      as_they_are.push_back(each.gradient);
      continue;
    }
    to_compress.push_back(each.gradient);
    (dtype == at::kFloat ? of_float : of_double).push_back(each);
  }
  if (!as_they_are.empty()) workers.all().all_reduce_(as_they_are, ReduceOp::Sum);
  if (to_compress.empty()) return;
  workers.sum_in_worker(to_compress);
  if (!of_float.empty()) sum_compressed(workers, of_float);
  if (!of_double.empty()) sum_compressed(workers, of_double);
}

at::Tensor orthonormal_columns(const at::Tensor& matrix) {
  // Rows of the transpose are the columns.
  const at::Tensor columns = matrix.to(at::kCPU, at::kDouble).t().contiguous().clone();
  const int64_t count = columns.size(0);
  const int64_t length = columns.size(1);
  double* const data = columns.data_ptr<double>();
  const auto product = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += data[a * length + i] * data[b * length + i];
    return sum;
  };
  for (int64_t c = 0; c < count; ++c) {
    const double before = product(c, c);
    for (int64_t earlier = 0; earlier < c; ++earlier) {
      const double part = product(earlier, c);
      for (int64_t i = 0; i < length; ++i) data[c * length + i] -= part * data[earlier * length + i];
    }
    const double square = product(c, c);
    // What remains of a column that depends on others is its rounding error.
    const bool depends = square <= before * 1e-12;
    const double scale = depends ? 0 : 1 / std::sqrt(square);
    for (int64_t i = 0; i < length; ++i) data[c * length + i] *= scale;
  }
  return columns.t().to(matrix.options());
}

}  // namespace lockstep::detail
