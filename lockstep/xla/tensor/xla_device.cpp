#include "lockstep/xla/tensor/xla_device.h"

#include <array>

#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/base/error.h"
#include "lockstep/device/carried_state.h"

namespace lockstep::xla {
namespace {

/// Never destroyed: tensors may outlive everything else.
struct Registry {
  std::mutex mutex;
  std::array<std::unique_ptr<XlaDevice>, kMaxDevices> devices;
  std::atomic<int> num_devices{0};
  std::atomic<PendingExecutor> executor{nullptr};
  std::atomic<uint64_t> num_losses{0};
};

Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

thread_local int user_function_depth = 0;

}  // namespace

bool is_backward_thread() { return torch::autograd::get_current_graph_task_exec_info() != nullptr; }

RunThread::RunThread(uint64_t run) : before_(lockstep::detail::run_of_thread().exchange(run)) {}

RunThread::~RunThread() { lockstep::detail::run_of_thread() = before_; }

void RunThread::join(uint64_t run) { lockstep::detail::run_of_thread() = run; }

bool RunThread::is_of(uint64_t run) {
  if (lockstep::detail::run_of_thread() == run) return true;
  return is_backward_thread() && lockstep::detail::carried_run() == run;
}

InUserFunction::InUserFunction() { ++user_function_depth; }

InUserFunction::~InUserFunction() { --user_function_depth; }

bool InUserFunction::is_current() { return user_function_depth > 0 || is_backward_thread(); }

void XlaDevice::append(PendingStorage& storage, std::vector<PendingStorage*>& list) {
  if (storage.list_ != nullptr) return;
  storage.list_ = &list;
  storage.slot_ = list.size();
  list.push_back(&storage);
}

void XlaDevice::add(PendingStorage& storage) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (storage.list_ == &written_) remove(storage);
  append(storage, pending_);
}

bool XlaDevice::is_listed(const PendingStorage& storage) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return storage.list_ != nullptr;
}

bool XlaDevice::has_pending() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return !pending_.empty();
}

void XlaDevice::add_written(PendingStorage& storage) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  append(storage, written_);
}

void XlaDevice::forget_written() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (PendingStorage* storage : written_) {
    if (storage == nullptr) continue;
    storage->list_ = nullptr;
    storage->executed();
  }
  written_.clear();
}

void XlaDevice::remove(PendingStorage& storage) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (storage.list_ == nullptr) return;
  (*storage.list_)[storage.slot_] = nullptr;
  storage.list_ = nullptr;
  while (!pending_.empty() && pending_.back() == nullptr) pending_.pop_back();
}

std::unique_ptr<Pending> XlaDevice::take() {
  static std::atomic<uint32_t> marks{0x80000000U};
  const uint32_t mark = ++marks;
  auto pending = std::make_unique<Pending>();
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (PendingStorage* storage : pending_) {
    if (storage == nullptr) continue;
    storage->list_ = nullptr;
    append(*storage, pending->storages);
    Trace::Result result = storage->pending_result();
    Node& node = *result.value;
    if (node.epoch == mark) continue;  // clones hold one value
    node.epoch = mark;
    pending->results.push_back(std::move(result));
  }
  pending_.clear();
  return pending;
}

void XlaDevice::executed(Pending& pending) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (PendingStorage* storage : pending.storages) {
    if (storage == nullptr) continue;
    storage->list_ = nullptr;
    storage->executed();
  }
  pending.storages.clear();
  forget_written();
}

void XlaDevice::put_back(Pending& pending) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (PendingStorage* storage : pending.storages) {
    if (storage == nullptr) continue;
    storage->list_ = nullptr;
    add(*storage);
  }
  pending.storages.clear();
}

void XlaDevice::roll_back(const std::string& why) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const std::vector<PendingStorage*> written = written_;
  for (PendingStorage* storage : written) {
    if (storage != nullptr && storage->roll_back()) num_rolled_back_.fetch_add(1);
  }
  forget_written();
  const std::vector<PendingStorage*> storages = pending_;
  for (PendingStorage* storage : storages) {
    if (storage == nullptr) continue;
    if (storage->roll_back()) {
      num_rolled_back_.fetch_add(1);
    } else {
      storage->lose(why);
      registry().num_losses.fetch_add(1);
    }
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

uint64_t num_losses() { return registry().num_losses.load(); }

void XlaDevice::begin_run() {
  num_seeds_ = num_collectives_ = 0;
  functions_.clear();
  collectives_.clear();
  open_collectives_.clear();
  num_closed_calls_ = 0;
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  forget_written();  // also that of a run around this one: if this one fails, it is not undone
  if (run.load(std::memory_order_relaxed) != nullptr) return;
  run_number_.fetch_add(1, std::memory_order_relaxed);
  first_read_.clear();
}

std::string XlaDevice::first_read() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return first_read_;
}

void XlaDevice::note_read(const char* function) {
  if (run.load(std::memory_order_relaxed) == nullptr || !InUserFunction::is_current()) return;
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (first_read_.empty()) first_read_ = function;
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
