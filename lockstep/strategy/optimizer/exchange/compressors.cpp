#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <ATen/ATen.h>

#include "lockstep/strategy/optimizer/exchange/gradient_compressor.h"

namespace lockstep::detail {
namespace {

/// Concatenates tensors into a flat one.
at::Tensor joined_flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape(-1));
  return at::cat(flat);
}

/// The inverse: views of a flat tensor with the shapes of `like`.
std::vector<at::Tensor> divided_like(const at::Tensor& flat, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const at::Tensor& tensor : like) {
    parts.push_back(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return parts;
}

/// What earlier steps left out of the gradients of each parameter; undefined before the first one.
class LeftOut {
 public:
  LeftOut(size_t num_parameters, bool is_kept) : errors_(num_parameters), is_kept_(is_kept) {}

  /// Returns the gradient with what was left out before, as a flat tensor that may be written.
  at::Tensor added(const GradientToSum& each) const {
    const at::Tensor& error = errors_[each.parameter];
    const at::Tensor flat = each.gradient.reshape(-1);
    return error.defined() ? flat + error : flat.clone();
  }
  void set(size_t parameter, at::Tensor error) {
    if (is_kept_) errors_[parameter] = std::move(error);
  }
  void clear(size_t parameter) { errors_[parameter].reset(); }
  void put_back(size_t parameter, const at::Tensor& sum, int num_workers) {
    if (errors_[parameter].defined()) errors_[parameter] += sum.reshape(-1) / num_workers;
  }

 private:
  std::vector<at::Tensor> errors_;
  bool is_kept_;
};

class NarrowCompressor final : public GradientCompressor {
 public:
  explicit NarrowCompressor(at::ScalarType dtype) : dtype_(dtype) {}

 protected:
  bool takes(const GradientToSum& /*gradient*/) override { return true; }

  void sum_compressed(const WorkerSums& workers, const std::vector<GradientToSum>& gradients) override {
    std::vector<at::Tensor> narrow;
    for (const GradientToSum& each : gradients) narrow.push_back(each.gradient.to(dtype_));
    if (workers.replicas_per_worker() == 1) {
      workers.all().all_reduce_(narrow, ReduceOp::Sum);
    } else {
      narrow = divided_like(workers.sum_over_workers(joined_flat(narrow)), narrow);
    }
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i].gradient.copy_(narrow[i]);
  }

 private:
  at::ScalarType dtype_;
};

class PowerCompressor final : public GradientCompressor {
 public:
  PowerCompressor(const compression::PowerSGD& options, size_t num_parameters)
      : options_(options),
        left_out_(num_parameters, options.error_feedback),
        factors_(num_parameters),
        counts_(num_parameters, 0) {}

  void put_back(size_t parameter, const at::Tensor& sum, int num_workers) override {
    left_out_.put_back(parameter, sum, num_workers);
  }

 protected:
  bool takes(const GradientToSum& each) override {
    const at::Tensor& gradient = each.gradient;
    if (counts_[each.parameter]++ < options_.start_step || gradient.dim() < 2) return false;
    const int64_t rows = gradient.size(0);
    const int64_t columns = gradient.numel() / rows;
    return rank_of(rows, columns) * (rows + columns) < gradient.numel();
  }

  /// Everything that all workers compute from the same bits is computed element by element, or in a fixed order: the
  /// products of matrices that LibTorch computes differ between processors.
  void sum_compressed(const WorkerSums& workers, const std::vector<GradientToSum>& gradients) override {
    std::vector<at::Tensor> matrices, left, right;
    for (const GradientToSum& each : gradients) {
      matrices.push_back(left_out_.added(each).view({each.gradient.size(0), -1}));
      left.push_back(matrices.back().mm(factor_of(each.parameter, matrices.back())));
    }
    left = divided_like(workers.sum_over_workers(joined_flat(left)), left);
    for (size_t i = 0; i < left.size(); ++i) {
      left[i] = orthonormal_columns(left[i]);
      right.push_back(matrices[i].t().mm(left[i]));
    }
    right = divided_like(workers.sum_over_workers(joined_flat(right)), right);
    for (size_t i = 0; i < right.size(); ++i) {
      const size_t parameter = gradients[i].parameter;
      const at::Tensor sum = product_of(left[i], right[i]);
      if (right[i].isfinite().all().item<bool>()) {
        left_out_.set(parameter, (matrices[i] - sum / workers.num_workers()).view(-1));
        factors_[parameter] = right[i].clone();
      } else {
        left_out_.clear(parameter);
        factors_[parameter].reset();
      }
      gradients[i].gradient.copy_(sum.view(gradients[i].gradient.sizes()));
    }
  }

 private:
  int64_t rank_of(int64_t rows, int64_t columns) const { return std::min({options_.rank, rows, columns}); }

  /// The factor of the step before, with random numbers for columns of zeros.
  at::Tensor factor_of(size_t parameter, const at::Tensor& matrix) {
    at::Tensor& factor = factors_[parameter];
    const int64_t rank = rank_of(matrix.size(0), matrix.size(1));
    if (!factor.defined()) factor = at::zeros({matrix.size(1), rank}, matrix.options());
    const at::Tensor is_empty = factor.eq(0).all(0).to(at::kCPU);
    for (int64_t column = 0; column < rank; ++column) {
      if (!is_empty[column].item<bool>()) continue;
      factor.select(1, column).copy_(random_column(parameter, column, matrix.size(1)));
    }
    return factor;
  }

  /// Not LibTorch's random numbers: those differ between processors, and between versions.
  at::Tensor random_column(size_t parameter, int64_t column, int64_t length) const {
    std::mt19937_64 random(options_.seed * 1000003 + parameter * 1009 + static_cast<uint64_t>(column));
    at::Tensor values = at::empty({length}, at::TensorOptions(at::kDouble).device(at::kCPU));
    for (int64_t i = 0; i < length; ++i) {
      values.data_ptr<double>()[i] = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    }
    return values;
  }

  static at::Tensor product_of(const at::Tensor& left, const at::Tensor& right) {
    at::Tensor sum = left.select(1, 0).unsqueeze(1) * right.select(1, 0);
    for (int64_t column = 1; column < left.size(1); ++column) {
      sum += left.select(1, column).unsqueeze(1) * right.select(1, column);
    }
    return sum;
  }

  const compression::PowerSGD options_;
  LeftOut left_out_;
  std::vector<at::Tensor> factors_;
  std::vector<int64_t> counts_;
};

class TopCompressor final : public GradientCompressor {
 public:
  TopCompressor(const compression::TopK& options, size_t num_parameters)
      : options_(options), left_out_(num_parameters, options.error_feedback) {}

  void put_back(size_t parameter, const at::Tensor& sum, int num_workers) override {
    left_out_.put_back(parameter, sum, num_workers);
  }

 protected:
  bool takes(const GradientToSum& /*gradient*/) override { return true; }

  void sum_compressed(const WorkerSums& workers, const std::vector<GradientToSum>& gradients) override {
    std::vector<at::Tensor> whole, values, indices;
    int64_t largest = 0;
    for (const GradientToSum& each : gradients) {
      whole.push_back(left_out_.added(each));
      const at::Tensor& flat = whole.back();
      const auto wanted = static_cast<int64_t>(std::ceil(options_.fraction * static_cast<double>(flat.numel())));
      indices.push_back(std::get<1>(flat.abs().topk(std::clamp<int64_t>(wanted, 1, flat.numel()))));
      values.push_back(flat.index_select(0, indices.back()));
      largest = std::max(largest, flat.numel());
    }
    const auto index_type = largest <= std::numeric_limits<int32_t>::max() ? at::kInt : at::kLong;
    const auto all_values = workers.of_workers(joined_flat(values));
    const auto all_indices = workers.of_workers(joined_flat(indices).to(index_type));
    for (const GradientToSum& each : gradients) each.gradient.zero_();
    for (int worker = 0; worker < workers.num_workers(); ++worker) {
      const auto theirs = divided_like(all_values[static_cast<size_t>(worker)], values);
      const auto places = divided_like(all_indices[static_cast<size_t>(worker)].to(at::kLong), indices);
      for (size_t i = 0; i < gradients.size(); ++i) {
        // A worker has an index once, so the order of additions is that of the workers.
        gradients[i].gradient.view(-1).index_add_(0, places[i], theirs[i]);
        if (worker == workers.worker()) whole[i].index_fill_(0, places[i], 0);
      }
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      left_out_.set(gradients[i].parameter, whole[i].nan_to_num_(0, 0, 0));
    }
  }

 private:
  const compression::TopK options_;
  LeftOut left_out_;
};

}  // namespace

std::unique_ptr<GradientCompressor> make_compressor(const GradientCompression& compression, size_t num_parameters) {
  if (std::holds_alternative<compression::Float16>(compression)) return std::make_unique<NarrowCompressor>(at::kHalf);
  if (std::holds_alternative<compression::BFloat16>(compression)) {
    return std::make_unique<NarrowCompressor>(at::kBFloat16);
  }
  if (const auto* power = std::get_if<compression::PowerSGD>(&compression)) {
    return std::make_unique<PowerCompressor>(*power, num_parameters);
  }
  if (const auto* top = std::get_if<compression::TopK>(&compression)) {
    return std::make_unique<TopCompressor>(*top, num_parameters);
  }
  return nullptr;
}

}  // namespace lockstep::detail
