#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"
#include "lockstep/strategy/optimizer/update/division.h"

namespace lockstep::detail {

/// Internal: gradients that are summed for their owners, and freed, while backward still computes others.
class LOCKSTEP_API BackwardSums {
 public:
  /// Called on a thread of its own with the number of a bucket whose gradients are all there: returns the sums of the
  /// elements that this rank owns. The gradients may be freed.
  using Sum = std::function<at::Tensor(size_t bucket)>;

  /// Buckets are taken whose parameters had dense gradients by `present`, or need none. All ranks take the same ones.
  BackwardSums(const std::vector<const DividedBucket*>& buckets, const std::vector<at::Tensor>& parameters,
               const std::vector<char>& present, Sum sum);

  /// Whether the same parameters need gradients as before.
  bool fits(const std::vector<at::Tensor>& parameters) const;

  /// The next backward pass computes the gradients of one step; see `GradientExchange::begin_backward`.
  GradientBuckets* begin(GradientBuckets* after);
  /// Waits for the sums of this pass, if one has begun. Gradients that backward did not compute count as zero.
  void finish();
  /// Backward threw, or the sums are used. Waits for what is in flight and drops all sums.
  void drop();
  /// Whether the thread may be using the gradient of a parameter.
  bool is_in_flight(size_t parameter) const;

  bool has_sums() const { return has_sums_; }
  /// After `finish`: whether the gradient of a parameter was summed, and whether backward computed it here.
  bool has_summed(size_t parameter) const { return has_sums_ && messages_.holds(parameter); }
  bool was_computed(size_t parameter) const;
  /// Returns the sums of a bucket; undefined where it was not taken.
  at::Tensor sums(size_t bucket) const { return has_sums_ ? sums_[bucket] : at::Tensor(); }

 private:
  static std::vector<char> early_buckets(const std::vector<const DividedBucket*>& buckets,
                                         const std::vector<at::Tensor>& parameters, const std::vector<char>& present);
  static std::vector<std::vector<size_t>> buckets_of_parameters(const std::vector<const DividedBucket*>& buckets,
                                                                const std::vector<at::Tensor>& parameters,
                                                                const std::vector<char>& early);
  std::vector<char> taken() const;
  void count(const std::vector<size_t>& computed);

  /// Whether each parameter needs a gradient.
  std::vector<char> needs_gradient_;
  /// The taken buckets of each parameter, in order.
  const std::vector<std::vector<size_t>> buckets_of_;
  /// Of each bucket; how many of them are missing in this pass.
  std::vector<size_t> num_parameters_;
  std::vector<size_t> missing_;
  const Sum sum_;
  std::vector<at::Tensor> sums_;
  bool has_sums_ = false;
  /// The last member: its thread uses the others.
  GradientBuckets messages_;
};

}  // namespace lockstep::detail
