#include "lockstep/strategy/optimizer/update/division.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

/// In elements: no cache line of a flat tensor belongs to two ranks.
constexpr int64_t kPartAlignment = 16;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Adds the elements of parameters of one dtype and device.
class BucketFiller {
 public:
  BucketFiller(std::vector<DividedBucket>& buckets, int num_ranks, int64_t bytes_per_bucket)
      : buckets_(buckets), num_ranks_(num_ranks), bytes_per_bucket_(bytes_per_bucket) {}

  void add(size_t parameter, const at::Tensor& tensor) {
    const int64_t step = num_ranks_ * kPartAlignment;
    const int64_t most = std::max(bytes_per_bucket_ / tensor.element_size() / step, int64_t{1}) * step;
    for (int64_t begin = 0; begin < tensor.numel();) {
      if (filled_ == 0) {
        buckets_.push_back({.dtype = tensor.scalar_type(), .device = tensor.device()});
      }
      const int64_t end = std::min(tensor.numel(), begin + most - filled_);
      buckets_.back().pieces.push_back({{parameter, begin, end}, filled_});
      filled_ += end - begin;
      begin = end;
      if (filled_ == most) close();
    }
  }

  void close() {
    if (filled_ == 0) return;
    buckets_.back().part = round_up(filled_, num_ranks_ * kPartAlignment) / num_ranks_;
    filled_ = 0;
  }

 private:
  std::vector<DividedBucket>& buckets_;
  const int64_t num_ranks_;
  const int64_t bytes_per_bucket_;
  /// Elements of the last bucket.
  int64_t filled_ = 0;
};

}  // namespace

std::vector<DividedPiece> DividedBucket::owned_by(int rank) const {
  std::vector<DividedPiece> owned;
  const int64_t begin = rank * part;
  for (const auto& [where, offset] : pieces) {
    const int64_t first = std::max(begin, offset);
    const int64_t last = std::min(begin + part, offset + where.size());
    if (first >= last) continue;
    owned.push_back({{where.parameter, where.begin + first - offset, where.begin + last - offset}, first - begin});
  }
  return owned;
}

std::vector<DividedBucket> divide(const std::vector<at::Tensor>& parameters, const std::vector<char>& divided,
                                  int num_ranks, int64_t bytes_per_bucket) {
  std::vector<DividedBucket> buckets;
  std::vector<char> left = divided;
  for (size_t first = parameters.size(); first-- > 0;) {
    if (left[first] == 0) continue;
    BucketFiller filler(buckets, num_ranks, bytes_per_bucket);
    for (size_t p = first + 1; p-- > 0;) {
      const bool is_alike = parameters[p].scalar_type() == parameters[first].scalar_type() &&
                            parameters[p].device() == parameters[first].device();
      if (left[p] == 0 || !is_alike) continue;
      filler.add(p, parameters[p]);
      left[p] = 0;
    }
    filler.close();
  }
  return buckets;
}

}  // namespace lockstep::detail
