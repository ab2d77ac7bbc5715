#include "lockstep/strategy/optimizer/update/backward_sums.h"

#include <algorithm>
#include <utility>

#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {
namespace {

/// Small, so that a bucket of the division is summed soon after its last gradient.
constexpr int64_t kBytesPerMessage = 4 << 20;

bool needs_gradient(const at::Tensor& parameter) { return parameter.requires_grad() && parameter.is_leaf(); }

}  // namespace

std::vector<char> BackwardSums::early_buckets(const std::vector<const DividedBucket*>& buckets,
                                              const std::vector<at::Tensor>& parameters,
                                              const std::vector<char>& present) {
  const auto fits = [&](const DividedPiece& piece) {
    const size_t p = piece.where.parameter;
    return !needs_gradient(parameters[p]) || present[p] == kDense;
  };
  std::vector<char> early;
  for (const DividedBucket* bucket : buckets) {
    early.push_back(std::all_of(bucket->pieces.begin(), bucket->pieces.end(), fits) ? 1 : 0);
  }
  return early;
}

std::vector<std::vector<size_t>> BackwardSums::buckets_of_parameters(const std::vector<const DividedBucket*>& buckets,
                                                                     const std::vector<at::Tensor>& parameters,
                                                                     const std::vector<char>& early) {
  std::vector<std::vector<size_t>> buckets_of(parameters.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const DividedPiece& piece : buckets[b]->pieces) {
      const size_t p = piece.where.parameter;
      if (early[b] != 0 && needs_gradient(parameters[p])) buckets_of[p].push_back(b);
    }
  }
  return buckets_of;
}

BackwardSums::BackwardSums(const std::vector<const DividedBucket*>& buckets, const std::vector<at::Tensor>& parameters,
                           const std::vector<char>& present, Sum sum)
    : buckets_of_(buckets_of_parameters(buckets, parameters, early_buckets(buckets, parameters, present))),
      num_parameters_(buckets.size(), 0),
      sum_(std::move(sum)),
      sums_(buckets.size()),
      messages_(parameters, taken(), kBytesPerMessage,
                [this](const std::vector<size_t>& computed) { count(computed); }) {
  for (const at::Tensor& parameter : parameters) needs_gradient_.push_back(needs_gradient(parameter) ? 1 : 0);
  for (const auto& of_parameter : buckets_of_) {
    for (const size_t b : of_parameter) ++num_parameters_[b];
  }
}

std::vector<char> BackwardSums::taken() const {
  std::vector<char> taken;
  for (const auto& of_parameter : buckets_of_) taken.push_back(of_parameter.empty() ? 0 : 1);
  return taken;
}

bool BackwardSums::fits(const std::vector<at::Tensor>& parameters) const {
  for (size_t p = 0; p < parameters.size(); ++p) {
    if ((needs_gradient(parameters[p]) ? 1 : 0) != needs_gradient_[p]) return false;
  }
  return true;
}

GradientBuckets* BackwardSums::begin(GradientBuckets* after) {
  if (messages_.num_buckets() == 0) return after;
  drop();
  missing_ = num_parameters_;
  messages_.begin(after);
  return &messages_;
}

void BackwardSums::count(const std::vector<size_t>& computed) {
  for (const size_t p : computed) {
    for (const size_t b : buckets_of_[p]) {
      if (--missing_[b] == 0) sums_[b] = sum_(b);
    }
  }
}

void BackwardSums::finish() {
  if (!messages_.is_begun()) return;
  messages_.finish();
  has_sums_ = true;
}

void BackwardSums::drop() {
  if (messages_.is_begun()) messages_.abandon();
  has_sums_ = false;
  std::fill(sums_.begin(), sums_.end(), at::Tensor());
}

bool BackwardSums::is_in_flight(size_t parameter) const { return messages_.is_begun() && messages_.holds(parameter); }

bool BackwardSums::was_computed(size_t parameter) const {
  const std::vector<size_t>& zeros = messages_.filled_with_zeros();
  return std::find(zeros.begin(), zeros.end(), parameter) == zeros.end();
}

}  // namespace lockstep::detail
