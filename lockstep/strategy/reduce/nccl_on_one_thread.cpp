#include "lockstep/strategy/reduce/nccl_on_one_thread.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/device_reduction.h"

namespace lockstep::detail {
namespace {

using Kind = comm::DeviceOperation::Kind;

void run_all(comm::DeviceCollectives& nccl, const std::vector<std::vector<comm::DeviceOperation>>& of_ranks,
             const char* operation) {
  std::vector<comm::RankOperations> work;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) work.push_back({static_cast<int>(rank), of_ranks[rank]});
  nccl.run(work, {c10::str(operation, " of NcclAllReduce"), {}});
}

at::Tensor as_mean(const at::Tensor& tensor, ReduceOp op) {
  const bool is_integer = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  if (op != ReduceOp::Mean || !is_integer) return tensor;
  return tensor.to(tensor.element_size() <= 2 ? at::kFloat : at::kDouble);
}

}  // namespace

NcclOnOneThread::NcclOnOneThread() = default;
NcclOnOneThread::~NcclOnOneThread() = default;

std::shared_ptr<comm::DeviceCollectives> NcclOnOneThread::between(const std::vector<c10::Device>& devices) {
  std::vector<int> cards;
  for (const c10::Device& device : devices) cards.push_back(device.index());
  const std::lock_guard lock(mutex_);
  auto& nccl = made_[cards];
  if (!nccl && comm::why_no_device_collectives(devices).empty()) {
    nccl = comm::make_device_collectives(
        {.name = "NcclAllReduce", .devices = cards, .timeout = env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT")});
  }
  if (nccl) nccl->renew();
  return nccl;
}

void NcclOnOneThread::check(const char* asks) {
  const std::lock_guard lock(mutex_);
  for (auto each = made_.begin(); each != made_.end(); ++each) {
    try {
      if (each->second) each->second->check(asks);
    } catch (const CollectiveError&) {
      made_.erase(each);  // the next call connects anew
      throw;
    }
  }
}

at::Tensor NcclOnOneThread::reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<c10::Device> devices;
  for (const at::Tensor& component : components) devices.push_back(component.device());
  const auto root = std::find(devices.begin(), devices.end(), device);
  const bool is_plain = components[0].layout() == at::kStrided && components[0].scalar_type() != at::kBool;
  if (!device.is_cuda() || root == devices.end() || !is_plain) return {};
  const auto nccl = between(devices);
  if (!nccl || !nccl->reduces(as_mean(components[0], op).scalar_type())) return {};
  const int root_rank = static_cast<int>(root - devices.begin());
  at::Tensor result;
  std::vector<comm::DeviceReduction> reductions;
  std::vector<std::vector<comm::DeviceOperation>> of_ranks;
  for (int rank = 0; rank < static_cast<int>(components.size()); ++rank) {
    const at::Tensor input = as_mean(components[static_cast<size_t>(rank)], op);
    if (rank == root_rank) result = at::empty(input.sizes(), input.options().requires_grad(false));
    reductions.emplace_back(at::TensorList(&input, 1),
                            rank == root_rank ? at::TensorList(&result, 1) : at::TensorList(), op,
                            static_cast<int>(components.size()));
    of_ranks.push_back(reductions.back().operations(Kind::Reduce, root_rank));
  }
  run_all(*nccl, of_ranks, "reduce");
  reductions[static_cast<size_t>(root_rank)].finish();
  return result;
}

std::vector<at::Tensor> NcclOnOneThread::broadcast(const at::Tensor& value, const std::vector<c10::Device>& devices) {
  const at::NoGradGuard no_grad;
  if (devices.size() < 2 || !value.is_cuda() || value.device() != devices[0] || value.layout() != at::kStrided) {
    return {};
  }
  const auto nccl = between(devices);
  if (!nccl) return {};
  std::vector<at::Tensor> copies{value.detach().resolve_conj().resolve_neg().contiguous()};
  std::vector<std::vector<comm::DeviceOperation>> of_ranks;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    if (rank > 0)
      copies.push_back(at::empty(value.sizes(), value.options().device(devices[rank]).requires_grad(false)));
    of_ranks.push_back({{.kind = Kind::Broadcast,
                         .input = copies[rank].data_ptr(),
                         .output = copies[rank].data_ptr(),
                         .count = value.nbytes(),
                         .dtype = at::kByte,
                         .peer = 0}});
  }
  run_all(*nccl, of_ranks, "broadcast");
  return copies;
}

}  // namespace lockstep::detail
