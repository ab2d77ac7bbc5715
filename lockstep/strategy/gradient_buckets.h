#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"

/// Inside: gradients that travel while backward still computes others.
namespace lockstep::detail {

/// The gradients of one replica, in buckets that are summed over all replicas as soon as backward has filled them.
///
/// Buckets hold parameters from the last to the first, about in the order in which backward reaches them. They are
/// summed one after the other by a thread of their own, in the same order on every replica; a bucket that one replica
/// cannot fill, because a parameter took no part there, goes when backward has ended, with zeros.
class GradientBuckets {
 public:
  /// `parameters` are of one replica; only those with a one in `taken` are put into buckets. `group` is used by nobody
  /// else while buckets are under way.
  GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken, comm::Group group,
                  int64_t bytes_per_bucket);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  bool holds(size_t parameter) const;
  size_t num_buckets() const;

  /// The backward pass that comes now fills the buckets.
  void begin();
  bool is_begun() const;
  /// Sends what is left and waits for all. After it, the gradients of all parameters in buckets are sums; one that this
  /// replica had none of has been made, and is among those that `filled` names.
  void finish();
  const std::vector<size_t>& filled() const;
  /// Forgets the pass that was begun: backward threw. Waits for what is under way.
  void abandon();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
