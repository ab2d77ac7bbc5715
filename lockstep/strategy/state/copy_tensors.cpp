#include "lockstep/strategy/state/copy_tensors.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/device/thread_share.h"

namespace lockstep::detail {
namespace {

/// Bytes that one thread copies at once.
constexpr int64_t kBytesPerTask = int64_t{1} << 20;

struct ByteCopy {
  const char* from;
  char* to;
  int64_t bytes;
};

bool is_plain_copy(const TensorCopy& copy) {
  return copy.from.device().is_cpu() && copy.to.device().is_cpu() && copy.from.scalar_type() == copy.to.scalar_type() &&
         copy.from.strides() == copy.to.strides() && copy.from.is_non_overlapping_and_dense();
}

}  // namespace

void copy_tensors(const std::vector<TensorCopy>& copies) {
  const at::NoGradGuard no_grad;
  std::vector<ByteCopy> tasks;
  for (const TensorCopy& copy : copies) {
    if (!is_plain_copy(copy)) {
      copy.to.detach().copy_(copy.from.detach());
      continue;
    }
    const auto* const from = static_cast<const char*>(copy.from.data_ptr());
    auto* const to = static_cast<char*>(copy.to.data_ptr());
    if (from == to) continue;
    const auto bytes = static_cast<int64_t>(copy.from.nbytes());
    for (int64_t begin = 0; begin < bytes; begin += kBytesPerTask) {
      tasks.push_back({from + begin, to + begin, std::min(kBytesPerTask, bytes - begin)});
    }
  }
  for_each_in_parallel(static_cast<int64_t>(tasks.size()), [&](int64_t i, int /*thread*/) {
    std::memcpy(tasks[i].to, tasks[i].from, static_cast<size_t>(tasks[i].bytes));
  });
}

void read_into(LoadPlan::Part part, const std::string& name, const at::Tensor& target) {
  if (target.device().type() != c10::DeviceType::XLA) return part.read(name, target);
  const auto host = std::make_shared<at::Tensor>();
  part.read(name, target.scalar_type(), target.sizes().vec(), [=] {
    *host = at::empty(target.sizes(), target.scalar_type());
    return std::vector<StatePiece>{{0, *host}};
  });
  part.after([=] {
    if (host->defined()) copy_tensors({{*host, target}});
  });
}

void bump_versions(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace lockstep::detail
