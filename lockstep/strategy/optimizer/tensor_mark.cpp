#include "lockstep/strategy/optimizer/tensor_mark.h"

#include <unordered_set>

namespace lockstep::detail {
namespace {

const c10::StorageImpl* storage_identity(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

NamedTensors distinct(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::unordered_set<const c10::TensorImpl*> seen;
  NamedTensors result;
  for (const auto& item : tensors) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

void TensorMark::take(const at::Tensor& tensor) {
  version_ = version_of(tensor);
  dtype_ = tensor.scalar_type();
  storage_ = storage_identity(tensor);
  if (tensor.sizes() != at::IntArrayRef(sizes_)) sizes_ = tensor.sizes().vec();
}

bool TensorMark::is_of(const at::Tensor& tensor, uint32_t known_writes) const {
  return version_of(tensor) == version_ + known_writes && storage_identity(tensor) == storage_ &&
         tensor.scalar_type() == dtype_ && tensor.sizes() == at::IntArrayRef(sizes_);
}

}  // namespace lockstep::detail
