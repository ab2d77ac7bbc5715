#include "lockstep/strategy/replay/capture_watch.h"

#include <atomic>

#include <ATen/core/Tensor.h>

#include "lockstep/base/hash.h"
#include "lockstep/device/captured_graph.h"

namespace lockstep::detail {
namespace {

std::atomic<CaptureWatch*> current_watch{nullptr};
/// The index of its GPU; -1 without one. Threads that take no part in the recording look at this alone.
std::atomic<int> watched_gpu{-1};

uint64_t hash_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 1;
  uint64_t hash = mix_hash(2, static_cast<uint64_t>(tensor.scalar_type()));
  for (const int64_t size : tensor.sizes()) hash = mix_hash(hash, static_cast<uint64_t>(size));
  return hash;
}

uint64_t hash_of(const c10::IValue& value) {
  if (value.isTensor()) return hash_of(value.toTensor());
  if (value.isInt()) return mix_hash(3, static_cast<uint64_t>(value.toInt()));
  if (value.isBool()) return mix_hash(4, value.toBool() ? 1 : 0);
  if (value.isDouble()) {
    const double number = value.toDouble();
    return mix_hash(5, reinterpret_cast<const char*>(&number), sizeof(number));
  }
  uint64_t hash = 6;
  if (value.isIntList()) {
    for (const int64_t number : value.toIntVector()) hash = mix_hash(hash, static_cast<uint64_t>(number));
  }
  return hash;
}

}  // namespace

CaptureWatch::CaptureWatch(c10::Device device)
    : handle_(at::addGlobalCallback(
          at::RecordFunctionCallback(&CaptureWatch::on_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  current_watch.store(this);
  watched_gpu.store(device.index());
}

CaptureWatch::~CaptureWatch() {
  watched_gpu.store(-1);
  at::removeCallback(handle_);
  current_watch.store(nullptr);
}

std::unique_ptr<at::ObserverContext> CaptureWatch::on_call(const at::RecordFunction& function) {
  const int gpu = watched_gpu.load();
  // Other threads, such as those of input pipelines, go on with their own work.
  if (gpu < 0 || !is_capturing(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)))) return nullptr;
  if (CaptureWatch* const watch = current_watch.load()) watch->note(function);
  return nullptr;
}

void CaptureWatch::note(const at::RecordFunction& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_function_ = function.name();
  uint64_t call = mix_hash(0, last_function_.data(), last_function_.size());
  for (const c10::IValue& input : function.inputs()) call = mix_hash(call, hash_of(input));
  calls_ += call;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) note_memory(input.toTensor());
    if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) note_memory(tensor);
    } else if (input.isList()) {  // of tensors that may be undefined, such as indices
      for (const c10::IValue& element : input.toListRef()) {
        if (element.isTensor()) note_memory(element.toTensor());
      }
    }
  }
}

void CaptureWatch::note_memory(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto known = memory_.find(storage);
  if (known != memory_.end() && !known->second.expired()) return;
  memory_.insert_or_assign(
      storage, c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)));
}

std::string CaptureWatch::last_function() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_function_;
}

uint64_t CaptureWatch::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

std::vector<c10::Storage> CaptureWatch::used_memory() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<c10::Storage> used;
  for (const auto& [impl, weak] : memory_) {
    if (auto strong = weak.lock()) used.emplace_back(std::move(strong));
  }
  return used;
}

}  // namespace lockstep::detail
