#include "lockstep/xla/tensor/xla_device.h"

#include <array>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

/// Never destroyed: tensors may outlive everything else.
struct Registry {
  std::mutex mutex;
  std::array<std::unique_ptr<XlaDevice>, kMaxDevices> devices;
  std::atomic<int> num_devices{0};
  std::atomic<PendingExecutor> executor{nullptr};
};

Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void XlaDevice::add(PendingStorage& storage) {
  if (storage.slot_ != SIZE_MAX) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  storage.slot_ = pending_.size();
  pending_.push_back(&storage);
}

void XlaDevice::remove(PendingStorage& storage) {
  if (storage.slot_ == SIZE_MAX) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_[storage.slot_] = nullptr;
  storage.slot_ = SIZE_MAX;
  while (!pending_.empty() && pending_.back() == nullptr) pending_.pop_back();
}

Pending XlaDevice::take() {
  static std::atomic<uint32_t> marks{0x80000000U};
  const uint32_t mark = ++marks;
  Pending pending;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (PendingStorage* storage : pending_) {
    if (storage == nullptr) continue;
    storage->slot_ = SIZE_MAX;
    pending.storages.push_back(storage);
    Trace::Result result = storage->pending_result();
    Node& node = *result.value;
    if (node.epoch == mark) continue;  // clones hold one value
    node.epoch = mark;
    pending.results.push_back(std::move(result));
  }
  pending_.clear();
  return pending;
}

void XlaDevice::roll_back() {
  std::vector<PendingStorage*> storages;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    storages = pending_;
  }
  for (PendingStorage* storage : storages) {
    if (storage != nullptr) storage->roll_back();
  }
}

std::chrono::milliseconds XlaDevice::shortest_timeout() const {
  std::chrono::milliseconds shortest{0};
  for (size_t i = num_closed_calls_; i < collectives_.size(); ++i) {
    const auto timeout = collectives_[i].timeout;
    if (timeout.count() > 0 && (shortest.count() == 0 || timeout < shortest)) shortest = timeout;
  }
  return shortest;
}

XlaDevice& device_of(const std::vector<int>& plugin_devices) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int count = all.num_devices.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (all.devices[i]->plugin_devices() == plugin_devices) return *all.devices[i];
  }
  LOCKSTEP_CHECK_VALUE(count < kMaxDevices,
                       "[xla] too many different groups of devices in one process: groups=", count);
  all.devices[count] = std::make_unique<XlaDevice>(count, plugin_devices);
  all.num_devices.store(count + 1, std::memory_order_release);
  return *all.devices[count];
}

int num_devices() { return registry().num_devices.load(std::memory_order_acquire); }

XlaDevice& device_at(int index) {
  LOCKSTEP_CHECK_VALUE(index >= 0 && index < num_devices(), "[xla] there is no such device: device=xla:", index,
                       ", devices=", num_devices(), "; make a TPUStrategy, or call initialize_tpu_system, first");
  return *registry().devices[index];
}

void set_pending_executor(PendingExecutor executor) { registry().executor.store(executor, std::memory_order_release); }

void execute_pending(XlaDevice& device) {
  const PendingExecutor execute = registry().executor.load(std::memory_order_acquire);
  LOCKSTEP_ASSERT(execute != nullptr, "no executor is set: device=", device.torch_device());
  execute(device);
}

}  // namespace lockstep::xla
