#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: gradients that are sent while backward still computes others.
namespace lockstep::detail {

/// How gradients are divided into buckets, and on which thread a bucket is completed.
struct BucketOptions {
  /// A bucket is closed as soon as it has this many bytes; 0 means 4 MiB. With `bytes_of_first`, the first one is
  /// closed at so many, so that it is sent early, and others have at most half of what is left, so that little is sent
  /// after backward has ended; 0 means that all are of one size.
  int64_t bytes_per_bucket = 0;
  int64_t bytes_of_first = 0;
  /// The parameters in the order in which they are put into buckets. Those that are not in it follow, from the last to
  /// the first.
  std::vector<size_t> order = {};
  /// Where it is given, nobody waits for a device on the host. It is called with a full bucket on the thread that
  /// computes gradients. `send` is then called with a stream of the buckets as the current one, which waits for the
  /// gradients of the bucket, and only queues work there. The caller's stream waits for that work in `finish`.
  std::function<void(const std::vector<size_t>& parameters)> prepare = nullptr;
};

/// The gradients of one replica, in buckets that are sent as soon as backward has filled them.
///
/// Unless an order is given, buckets hold parameters from the last to the first, which is about the order in which
/// backward reaches them; a bucket then has one dtype. A thread of their own sends them one after the other, in the
/// same order on every replica. A bucket that this replica cannot fill, because one of its parameters took no part in
/// the loss, is sent by `finish`, with zeros for what is missing.
class LOCKSTEP_API GradientBuckets {
 public:
  /// Called on the thread of the buckets with the indices of a bucket's parameters, after the device has computed their
  /// gradients: sums them over other workers, or copies them to another device.
  using Send = std::function<void(const std::vector<size_t>& parameters)>;

  /// `parameters` are those of one replica; the ones with a zero in `taken` are in no bucket.
  GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken, BucketOptions options, Send send);
  GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken, int64_t bytes_per_bucket,
                  Send send)
      : GradientBuckets(std::move(parameters), taken, BucketOptions{.bytes_per_bucket = bytes_per_bucket},
                        std::move(send)) {}
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  bool holds(size_t parameter) const;
  size_t num_buckets() const;

  /// The next backward pass fills the buckets. Those of several optimizers that one pass fills are sent one after the
  /// other: these ones when all of `after`, which has begun before and is finished before, are sent.
  void begin(GradientBuckets* after = nullptr);
  /// Whether a pass has begun and is neither finished nor abandoned.
  bool is_begun() const;
  /// Sends the remaining buckets, as `finish` does, and does not wait.
  void send_rest();
  /// Sends the remaining buckets and waits for all. Throws what `send` has thrown.
  void finish();
  /// The parameters whose gradients were made of zeros, because backward computed none. Call it after `finish`, or
  /// `send_rest` where nobody waits for a device on the host.
  const std::vector<size_t>& filled_with_zeros() const;
  /// Backward threw: waits for the buckets in flight and sends no others.
  void abandon();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// Makes buckets for the parameters whose gradients are dense by `present`.
LOCKSTEP_API std::unique_ptr<GradientBuckets> make_buckets(const std::vector<at::Tensor>& parameters,
                                                           const std::vector<char>& present, GradientBuckets::Send send,
                                                           BucketOptions options);
/// A bucket is closed as soon as it has `bytes_per_bucket`; 0 means 4 MiB.
LOCKSTEP_API std::unique_ptr<GradientBuckets> make_buckets(const std::vector<at::Tensor>& parameters,
                                                           const std::vector<char>& present, GradientBuckets::Send send,
                                                           int64_t bytes_per_bucket = 0);

}  // namespace lockstep::detail
