#include "lockstep/strategy/shared_update.h"

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

/// Stands for the gradient of a replica that has none.
alignas(64) constexpr std::array<char, kMaxChunkBytes + 64> kZeros{};

char* bytes_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * tensor.element_size();
}

}  // namespace

SharedUpdate::SharedUpdate(const std::vector<UpdateChunk>& chunks, const std::vector<at::Tensor>& parameters,
                           const std::vector<size_t>& groups, const MakeOptimizer& make)
    : parameters_(parameters) {
  for (const UpdateChunk& where : chunks) {
    Chunk chunk{where, groups[where.parameter], {}, {}, nullptr};
    const at::Tensor& whole = parameters[where.parameter];
    point_at(chunk.parameter, whole, where.begin, where.end);
    chunk.gradient = at::empty({where.size()}, whole.options().requires_grad(false));
    chunk.parameter.mutable_grad() = chunk.gradient;
    chunk.optimizer = make(chunk.parameter, chunk.group);
    scratch_[whole.scalar_type()];
    chunks_.push_back(std::move(chunk));
  }
  for (auto& [dtype, buffers] : scratch_) {
    buffers.resize(std::max(num_hardware_threads(), at::get_num_threads()));
  }
}

const at::Tensor& SharedUpdate::scratch(at::ScalarType dtype, int thread) {
  std::vector<at::Tensor>& buffers = scratch_.at(dtype);
  LOCKSTEP_ASSERT(thread < static_cast<int>(buffers.size()), "thread=", thread);
  at::Tensor& buffer = buffers[thread];
  if (!buffer.defined()) buffer = at::empty({kMaxChunkBytes / static_cast<int64_t>(c10::elementSize(dtype))}, dtype);
  return buffer;
}

/// Makes `chunk.gradient` the sum over replicas; false where no replica has a gradient.
bool SharedUpdate::load_gradient(Chunk& chunk, int owner, int thread, const std::vector<const UpdateOffer*>& offers) {
  const auto& [parameter, begin, end] = chunk.where;
  const at::Tensor& own = offers[owner]->gradients[parameter];
  if (offers.size() == 1 || offers[owner]->reduced) {
    if (own.defined()) point_at(chunk.gradient, own, begin, end);
    return own.defined();
  }
  bool any = false;
  std::vector<const void*> sources;
  const at::ScalarType dtype = chunk.parameter.scalar_type();
  const int64_t skipped = begin * static_cast<int64_t>(c10::elementSize(dtype));
  for (const UpdateOffer* offer : offers) {
    const char* const gradient = offer->parameters[parameter].gradient;
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

void SharedUpdate::update(Chunk& chunk, int owner, int thread, const std::vector<const UpdateOffer*>& offers,
                          const std::vector<torch::optim::OptimizerParamGroup>& options) {
  const auto& [parameter, begin, end] = chunk.where;
  const at::Tensor& whole = parameters_[parameter];
  if (!load_gradient(chunk, owner, thread, offers)) return;
  if (chunk.parameter.data_ptr() != bytes_at(whole, begin)) point_at(chunk.parameter, whole, begin, end);
  chunk.optimizer->param_groups()[0].set_options(options[chunk.group].options().clone());
  chunk.optimizer->step();
  const int64_t width = whole.element_size();
  for (size_t replica = 0; replica < offers.size(); ++replica) {
    if (static_cast<int>(replica) == owner) continue;
    std::memcpy(offers[replica]->parameters[parameter].data + begin * width, chunk.parameter.data_ptr(),
                (end - begin) * width);
  }
}

void SharedUpdate::apply(int owner, const std::vector<const UpdateOffer*>& offers, const std::vector<char>& skip,
                         const std::vector<torch::optim::OptimizerParamGroup>& options) {
  for_each_in_parallel(static_cast<int64_t>(chunks_.size()), [&](int64_t i, int thread) {
    if (skip[chunks_[i].where.parameter] == 0) update(chunks_[i], owner, thread, offers, options);
  });
}

}  // namespace lockstep::detail
