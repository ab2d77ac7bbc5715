#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

/// Inside: gradients that travel while backward still computes others.
namespace lockstep::detail {

/// The gradients of one replica, in buckets that are sent as soon as backward has filled them.
///
/// Buckets hold parameters from the last to the first, about in the order in which backward reaches them. They are
/// sent one after the other by a thread of their own, in the same order on every replica; a bucket that one replica
/// cannot fill, because a parameter took no part there, goes when backward has ended, with zeros.
class GradientBuckets {
 public:
  /// What is done with the gradients of a bucket, on its thread, after what the device had computed: sums over other
  /// workers, or a copy to the host. `parameters` are places among those of the replica.
  using Send = std::function<void(const std::vector<size_t>& parameters)>;

  /// `parameters` are of one replica; only those with a one in `taken` are put into buckets.
  GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken, int64_t bytes_per_bucket,
                  Send send);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  bool holds(size_t parameter) const;
  size_t num_buckets() const;

  /// The backward pass that comes now fills the buckets.
  void begin();
  bool is_begun() const;
  /// Sends what is left and waits for all. A gradient that this replica had none of has been made, of zeros, and is
  /// among those that `filled` names.
  void finish();
  const std::vector<size_t>& filled() const;
  /// Forgets the pass that was begun: backward threw. Waits for what is under way.
  void abandon();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
