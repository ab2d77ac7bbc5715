#include "lockstep/strategy/optimizer/update/sharded_update.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/device/thread_share.h"

namespace lockstep::detail {
namespace {

/// The gradient of a replica that has none.
alignas(64) constexpr std::array<char, kMaxChunkBytes + 64> kZeros{};

char* bytes_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * tensor.element_size();
}

}  // namespace

ShardedUpdate::ShardedUpdate(const std::vector<UpdateChunk>& chunks, const std::vector<at::Tensor>& parameters,
                             const std::vector<size_t>& groups, MakeOptimizer make)
    : make_(std::move(make)) {
  for (const UpdateChunk& where : chunks) {
    chunks_.push_back({where, groups[where.parameter], {}, {}, nullptr});
    scratch_[parameters[where.parameter].scalar_type()];
  }
  for (auto& [dtype, buffers] : scratch_) {
    buffers.resize(std::max(num_hardware_threads(), at::get_num_threads()));
  }
}

/// Called at the first update of a chunk: tables that are updated by rows never have one.
void ShardedUpdate::prepare(Chunk& chunk, const at::Tensor& whole) {
  point_at(chunk.parameter, whole, chunk.where.begin, chunk.where.end);
  chunk.gradient = at::empty({0}, whole.options().requires_grad(false));
  chunk.parameter.mutable_grad() = chunk.gradient;
  chunk.optimizer = make_(chunk.parameter, chunk.group);
}

const at::Tensor& ShardedUpdate::scratch(at::ScalarType dtype, int thread) {
  std::vector<at::Tensor>& buffers = scratch_.at(dtype);
  LOCKSTEP_ASSERT(thread < static_cast<int>(buffers.size()), "thread=", thread);
  at::Tensor& buffer = buffers[thread];
  if (!buffer.defined()) buffer = at::empty({kMaxChunkBytes / static_cast<int64_t>(c10::elementSize(dtype))}, dtype);
  return buffer;
}

/// Makes `chunk.gradient` the sum over replicas; false where no replica has a gradient.
bool ShardedUpdate::load_gradient(Chunk& chunk, int owner, int thread, const AllGradients& all) {
  const auto& [parameter, begin, end] = chunk.where;
  const at::Tensor& gradient_here = all[owner]->gradients[parameter];
  if (all.size() == 1 || is_sum_on_all(all, parameter)) {
    if (gradient_here.defined()) point_at(chunk.gradient, gradient_here, begin, end);
    return gradient_here.defined();
  }
  bool any = false;
  std::vector<const void*> sources;
  const at::ScalarType dtype = all[owner]->values[parameter].scalar_type();
  const int64_t skipped = begin * static_cast<int64_t>(c10::elementSize(dtype));
  for (size_t replica = 0; replica < all.size(); ++replica) {
    const char* const gradient =
        is_added(all, replica, parameter) ? all[replica]->parameters[parameter].gradient : nullptr;
    any = any || gradient != nullptr;
    sources.push_back(gradient != nullptr ? gradient + skipped : kZeros.data());
  }
  if (!any) return false;
  const at::Tensor& sum = scratch(dtype, thread);
  void* const target = sum.data_ptr();
  comm::reduce_kernel(dtype, ReduceOp::Sum, sources.size())(sources, {&target, 1}, end - begin);
  point_at(chunk.gradient, sum, 0, end - begin);
  return true;
}

void ShardedUpdate::update(Chunk& chunk, int owner, int thread, const AllGradients& all, const Groups& options) {
  const auto& [parameter, begin, end] = chunk.where;
  const at::Tensor& whole = all[owner]->values[parameter];
  if (!chunk.optimizer) prepare(chunk, whole);
  if (!load_gradient(chunk, owner, thread, all)) return;
  if (chunk.parameter.data_ptr() != bytes_at(whole, begin)) point_at(chunk.parameter, whole, begin, end);
  chunk.optimizer->param_groups()[0].set_options(options[chunk.group].options().clone());
  chunk.optimizer->step();
  const int64_t width = whole.element_size();
  for (const ReplicaGradients* replica : all) {
    char* const copy = replica->parameters[parameter].data + begin * width;
    if (copy != chunk.parameter.data_ptr()) std::memcpy(copy, chunk.parameter.data_ptr(), (end - begin) * width);
  }
}

/// An owner's chunks are in the order of the parameters.
size_t ShardedUpdate::first_chunk(size_t parameter) const {
  const auto first = std::lower_bound(chunks_.begin(), chunks_.end(), parameter,
                                      [](const Chunk& chunk, size_t wanted) { return chunk.where.parameter < wanted; });
  return static_cast<size_t>(first - chunks_.begin());
}

std::vector<ShardedUpdate::ChunkState> ShardedUpdate::chunks_of(size_t parameter) const {
  std::vector<ChunkState> found;
  for (size_t i = first_chunk(parameter); i < chunks_.size() && chunks_[i].where.parameter == parameter; ++i) {
    found.push_back({chunks_[i].where, chunks_[i].optimizer.get(), chunks_[i].parameter});
  }
  return found;
}

std::vector<ShardedUpdate::ChunkState> ShardedUpdate::renew(size_t parameter, const at::Tensor& whole) {
  for (size_t i = first_chunk(parameter); i < chunks_.size() && chunks_[i].where.parameter == parameter; ++i) {
    Chunk& chunk = chunks_[i];
    chunk.optimizer.reset();
    chunk.parameter.reset();
    if (whole.defined()) prepare(chunk, whole);
  }
  return chunks_of(parameter);
}

void ShardedUpdate::apply(int owner, const AllGradients& all, const UpdateMethods& methods, ParameterRange segment,
                          const Groups& options) {
  for_each_in_parallel(static_cast<int64_t>(chunks_.size()), [&](int64_t i, int thread) {
    const size_t parameter = chunks_[i].where.parameter;
    if (!segment.contains(parameter) || methods[parameter] != UpdateMethod::Sharded) return;
    update(chunks_[i], owner, thread, all, options);
  });
}

}  // namespace lockstep::detail
