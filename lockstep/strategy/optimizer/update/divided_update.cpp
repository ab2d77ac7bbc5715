#include "lockstep/strategy/optimizer/update/divided_update.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

namespace lockstep::detail {
namespace {

/// Large enough that bandwidth, not latency, decides; what is in flight is small beside the parameters.
constexpr int64_t kBytesPerDividedBucket = 16 << 20;

at::Tensor elements(const at::Tensor& contiguous, const UpdateChunk& where) {
  return contiguous.detach().view(-1).narrow(0, where.begin, where.size());
}

/// Returns tensors one behind the other, and zeros up to a size.
at::Tensor flat_tensor(std::vector<at::Tensor> pieces, int64_t size, const at::TensorOptions& options) {
  int64_t filled = 0;
  for (const at::Tensor& piece : pieces) filled += piece.numel();
  if (filled < size) pieces.push_back(at::zeros({size - filled}, options));
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

}  // namespace

DividedUpdate::DividedUpdate(DividedUpdateSetup setup)
    : setup_(std::move(setup)), buckets_left_(setup_.divided.size(), 0), memory_(setup_.divided.size()) {
  const int64_t bytes = setup_.bytes_per_bucket > 0 ? setup_.bytes_per_bucket : kBytesPerDividedBucket;
  for (DividedBucket& bucket : divide(setup_.parameters.stored, setup_.divided, setup_.num_ranks, bytes)) {
    Bucket made;
    for (const DividedPiece& piece : bucket.owned_by(setup_.rank)) made.own.push_back({piece, {}});
    made.all = std::move(bucket);
    buckets_.push_back(std::move(made));
  }
}

bool DividedUpdate::is_sum(const AgreedGradients& agreed, size_t parameter) const {
  return !setup_.scatters || agreed.sums[parameter] != 0;
}

void DividedUpdate::check_dense(const AgreedGradients& agreed) const {
  for (size_t p = 0; p < setup_.divided.size(); ++p) {
    LOCKSTEP_CHECK_IMPLEMENTED(
        setup_.divided[p] == 0 || agreed.present[p] != kSparse,
        "[optimizer] sparse gradients cannot be divided over replicas: parameter=", setup_.parameters.name(p),
        ", shape=", setup_.parameters.stored[p].sizes(),
        "; make the table without sparse(true), or give it to another optimizer, with Shard::None");
  }
}

const at::Tensor& DividedUpdate::memory_of(size_t parameter) {
  at::Tensor& memory = memory_[parameter];
  if (!memory.defined()) memory = setup_.parameters.stored[parameter].detach().contiguous();
  return memory;
}

void DividedUpdate::point_at_parameters() {
  std::fill(memory_.begin(), memory_.end(), at::Tensor());
  for (Bucket& bucket : buckets_) {
    for (Slice& slice : bucket.own) {
      const UpdateChunk& where = slice.where.where;
      point_at(slice.parameter, memory_of(where.parameter), where.begin, where.end);
    }
  }
}

/// Takes over the options that hold now.
void DividedUpdate::prepare() {
  point_at_parameters();
  const auto& groups = setup_.prototype.groups();
  if (!optimizer_) {
    std::vector<std::vector<at::Tensor>> slices(groups.size());
    for (const Bucket& bucket : buckets_) {
      for (const Slice& slice : bucket.own)
        slices[setup_.groups[slice.where.where.parameter]].push_back(slice.parameter);
    }
    optimizer_ = setup_.prototype.make_for(slices);
    const auto is_on_gpu = [](const Bucket& bucket) { return bucket.all.device.is_cuda(); };
    if (std::any_of(buckets_.begin(), buckets_.end(), is_on_gpu)) fused_ = FusedUpdate::make(*optimizer_);
  }
  for (size_t g = 0; g < groups.size(); ++g) optimizer_->param_groups()[g].set_options(groups[g].options().clone());
}

/// Returns the sums of this rank's elements of a bucket. Undefined gradients count as zero.
at::Tensor DividedUpdate::scatter(const comm::Group& group, const DividedBucket& bucket,
                                  c10::function_ref<at::Tensor(size_t)> gradient_of) const {
  const at::TensorOptions options = at::TensorOptions().dtype(bucket.dtype).device(bucket.device);
  std::vector<at::Tensor> pieces;
  for (const auto& [where, offset] : bucket.pieces) {
    const at::Tensor gradient = gradient_of(where.parameter);
    pieces.push_back(gradient.defined() ? elements(gradient, where) : at::zeros({where.size()}, options));
  }
  const at::Tensor flat = flat_tensor(std::move(pieces), setup_.num_ranks * bucket.part, options);
  return group.reduce_scatter(flat, ReduceOp::Sum);
}

/// On the thread of the buckets.
at::Tensor DividedUpdate::sum_during_backward(size_t bucket) {
  const at::Tensor sums = scatter(setup_.backward_group(), buckets_[bucket].all, [&](size_t p) {
    return gradient_to_reduce(setup_.parameters.parameters[p], setup_.parameters.name(p));
  });
  wait_for_stream(buckets_[bucket].all.device);  // the gradients may be memory of another stream
  drop_gradients(bucket);
  return sums;
}

void DividedUpdate::count_buckets() {
  std::fill(buckets_left_.begin(), buckets_left_.end(), 0);
  for (const Bucket& bucket : buckets_) {
    for (const DividedPiece& piece : bucket.all.pieces) ++buckets_left_[piece.where.parameter];
  }
}

void DividedUpdate::drop_gradients(size_t bucket) {
  for (const DividedPiece& piece : buckets_[bucket].all.pieces) {
    const size_t p = piece.where.parameter;
    if (--buckets_left_[p] == 0) setup_.parameters.parameters[p].mutable_grad().reset();
  }
}

GradientBuckets* DividedUpdate::begin_backward(GradientBuckets* after) {
  if (backward_sums_ && !backward_sums_->fits(setup_.parameters.parameters)) backward_sums_.reset();
  if (!backward_sums_) return after;
  count_buckets();
  setup_.wait([&] { after = backward_sums_->begin(after); });
  return after;
}

void DividedUpdate::finish_backward() {
  if (backward_sums_) setup_.wait([&] { backward_sums_->finish(); });
}

void DividedUpdate::abandon_backward() {
  if (backward_sums_) setup_.wait([&] { backward_sums_->drop(); });
}

void DividedUpdate::set_presence(ReplicaGradients& published) const {
  for (size_t p = 0; backward_sums_ && p < published.parameters.size(); ++p) {
    if (backward_sums_->has_summed(p)) {
      published.parameters[p].presence = backward_sums_->was_computed(p) ? kDense : kAbsent;
    }
  }
}

/// After the first step: which buckets can be summed during backward.
void DividedUpdate::follow_backward(const AgreedGradients& agreed) {
  if (!setup_.backward_group) return;
  if (backward_sums_) return backward_sums_->drop();
  std::vector<const DividedBucket*> buckets;
  for (const Bucket& bucket : buckets_) buckets.push_back(&bucket.all);
  backward_sums_ = std::make_unique<BackwardSums>(buckets, setup_.parameters.parameters, agreed.present,
                                                  [this](size_t bucket) { return sum_during_backward(bucket); });
}

/// Returns the sums of this rank's elements of a bucket; undefined where all gradients are sums already, or absent.
at::Tensor DividedUpdate::sums_of(size_t bucket, const AgreedGradients& agreed, ReducedGradients& reduced) {
  at::Tensor early = backward_sums_ ? backward_sums_->sums(bucket) : at::Tensor();
  if (early.defined()) {
    if (early.is_cuda()) early.record_stream(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(early.device()));
    return early;
  }
  const DividedBucket& all = buckets_[bucket].all;
  const auto is_summed_here = [&](size_t p) { return agreed.present[p] != kAbsent && !is_sum(agreed, p); };
  at::Tensor sums;
  if (std::any_of(all.pieces.begin(), all.pieces.end(),
                  [&](const DividedPiece& piece) { return is_summed_here(piece.where.parameter); })) {
    sums = scatter(setup_.group(), all, [&](size_t p) {
      if (!is_summed_here(p)) return at::Tensor();
      reduced.take_share(p);
      return gradient_to_reduce(setup_.parameters.parameters[p], setup_.parameters.name(p));
    });
  }
  return sums;
}

/// Gives each slice its elements of the sums.
void DividedUpdate::take_gradients(size_t bucket, const AgreedGradients& agreed, ReducedGradients& reduced) {
  const at::Tensor sums = sums_of(bucket, agreed, reduced);
  for (Slice& slice : buckets_[bucket].own) {
    const UpdateChunk& where = slice.where.where;
    slice.parameter.mutable_grad().reset();
    if (agreed.present[where.parameter] == kAbsent) continue;
    at::Tensor gradient;
    if (is_sum(agreed, where.parameter)) {
      const at::Tensor whole = exchanged_gradient(setup_.parameters, where.parameter);
      LOCKSTEP_ASSERT(whole.defined(), "parameter=", setup_.parameters.name(where.parameter));
      point_at(gradient, whole, where.begin, where.end);
    } else {
      point_at(gradient, sums, slice.where.offset, slice.where.offset + where.size());
    }
    slice.parameter.mutable_grad() = gradient;
    gradient_bytes_ += static_cast<int64_t>(gradient.nbytes());
  }
}

/// Gets the updated values of all owners.
void DividedUpdate::share_values(const Bucket& bucket, const AgreedGradients& agreed) {
  const auto is_updated = [&](const DividedPiece& piece) { return agreed.present[piece.where.parameter] != kAbsent; };
  if (std::none_of(bucket.all.pieces.begin(), bucket.all.pieces.end(), is_updated)) return;
  std::vector<at::Tensor> own;
  for (const Slice& slice : bucket.own) own.push_back(slice.parameter);
  const at::TensorOptions options = at::TensorOptions().dtype(bucket.all.dtype).device(bucket.all.device);
  const at::Tensor all = setup_.group().all_gather(flat_tensor(std::move(own), bucket.all.part, options));
  for (const DividedPiece& piece : bucket.all.pieces) {
    if (!is_updated(piece)) continue;
    elements(memory_of(piece.where.parameter), piece.where).copy_(all.narrow(0, piece.offset, piece.where.size()));
  }
}

void DividedUpdate::step(const AgreedGradients& agreed, ReducedGradients& reduced) {
  const at::NoGradGuard no_grad;
  check_dense(agreed);
  prepare();
  gradient_bytes_ = 0;
  const bool has_early_sums = backward_sums_ && backward_sums_->has_sums();
  if (!has_early_sums) count_buckets();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const bool is_early = has_early_sums && backward_sums_->sums(b).defined();
    take_gradients(b, agreed, reduced);
    if (setup_.scatters && !is_early) drop_gradients(b);
  }
  has_counts_ = false;
  if (!fused_ || !fused_->step(*optimizer_)) optimizer_->step();
  for (Bucket& bucket : buckets_) {
    for (Slice& slice : bucket.own) slice.parameter.mutable_grad().reset();
    share_values(bucket, agreed);
  }
  store_copies(agreed);
  if (setup_.scatters) follow_backward(agreed);
}

/// Parameters that are not contiguous were updated in copies.
void DividedUpdate::store_copies(const AgreedGradients& agreed) {
  const auto is_copy = [&](size_t p) {
    return memory_[p].defined() && memory_[p].data_ptr() != setup_.parameters.stored[p].data_ptr();
  };
  for (size_t p = 0; p < memory_.size(); ++p) {
    if (is_copy(p) && agreed.present[p] != kAbsent) setup_.parameters.stored[p].detach().copy_(memory_[p]);
  }
  for (Bucket& bucket : buckets_) {
    for (Slice& slice : bucket.own) {
      if (is_copy(slice.where.where.parameter)) slice.parameter.set_();
    }
  }
  std::fill(memory_.begin(), memory_.end(), at::Tensor());
}

std::vector<ShardedUpdate::ChunkState> DividedUpdate::chunks_of(size_t parameter) const {
  if (fused_ && !std::exchange(has_counts_, true)) fused_->give_counts(*optimizer_);
  std::vector<ShardedUpdate::ChunkState> found;
  for (const Bucket& bucket : buckets_) {
    for (const Slice& slice : bucket.own) {
      if (slice.where.where.parameter != parameter) continue;
      found.push_back({slice.where.where, optimizer_.get(), slice.parameter});
    }
  }
  return found;
}

std::vector<ShardedUpdate::ChunkState> DividedUpdate::renew(size_t parameter) {
  if (!optimizer_) {
    prepare();
    std::fill(memory_.begin(), memory_.end(), at::Tensor());
  }
  return chunks_of(parameter);
}

void check_shard(const OptimizerSetup& setup, const torch::optim::Optimizer& kind) {
  if (setup.shard == Shard::None) return;
  LOCKSTEP_CHECK_IMPLEMENTED(
      setup.shard != Shard::Parameters, "[optimizer] parameters cannot be divided over replicas: LibTorch's modules ",
      "have no call before forward by which the parameters of a layer could be gathered; use Shard::Gradients, which ",
      "divides optimizer state and gradients");
  LOCKSTEP_CHECK_IMPLEMENTED(
      setup.elementwise, "[optimizer] only the state of an optimizer that treats every element of a parameter alone ",
      "can be divided over replicas: class=", c10::demangle(typeid(kind).name()),
      "; use Shard::None, or set lockstep::kElementwise for a class of your own that does");
  for (const auto& groups : setup.groups) {
    for (const auto& group : groups) {
      for (const at::Tensor& parameter : group.params()) {
        LOCKSTEP_CHECK_IMPLEMENTED(parameter.device().type() != c10::DeviceType::XLA,
                                   "[optimizer] optimizer state cannot be divided over XLA devices: device=",
                                   parameter.device(), "; use Shard::None");
      }
    }
  }
  LOCKSTEP_CHECK_VALUE(setup.shard != Shard::Gradients || std::holds_alternative<compression::None>(setup.compression),
                       "[optimizer] gradients that are divided over replicas cannot be compressed: compression=",
                       setup.compression, "; use Shard::State with compression, or Shard::Gradients without");
}

}  // namespace lockstep::detail
