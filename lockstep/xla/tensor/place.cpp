#include "lockstep/xla/tensor/place.h"

#include <array>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "lockstep/xla/tensor/register.h"

namespace lockstep::xla {
namespace {

/// Everything that lives as long as the process: plugins own threads, and tensors may outlive all else.
struct Runtime {
  std::mutex mutex;
  std::atomic<Client*> client{nullptr};
  std::array<std::unique_ptr<Place>, kMaxPlaces> places;
  std::atomic<int> num_places{0};
};

Runtime& runtime() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

}  // namespace

void Place::add(LazyStorage& storage) {
  if (storage.slot_ != SIZE_MAX || storage.value_->op == Op::Argument) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  storage.slot_ = pending_.size();
  pending_.push_back(&storage);
}

void Place::remove(LazyStorage& storage) {
  if (storage.slot_ == SIZE_MAX) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_[storage.slot_] = nullptr;
  storage.slot_ = SIZE_MAX;
  while (!pending_.empty() && pending_.back() == nullptr) pending_.pop_back();
}

Pending Place::take() {
  static std::atomic<uint32_t> marks{0x80000000U};
  const uint32_t mark = ++marks;
  Pending pending;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (LazyStorage* storage : pending_) {
    if (storage == nullptr) continue;
    storage->slot_ = SIZE_MAX;
    storage->views.clear();
    pending.storages.push_back(storage);
    Node& node = *storage->value_;
    if (node.epoch == mark) continue;  // clones hold one value
    node.epoch = mark;
    pending.results.push_back({storage->value_, storage->layout, storage->before_.get()});
  }
  pending_.clear();
  return pending;
}

void Place::roll_back() {
  std::vector<LazyStorage*> storages;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    storages = pending_;
  }
  for (LazyStorage* storage : storages) {
    if (storage != nullptr) storage->roll_back();
  }
}

Client& start(const StartOptions& options) {
  Runtime& all = runtime();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Client* running = all.client.load(std::memory_order_acquire);
  const int asked = options.num_cpu_devices;
  if (running != nullptr) {
    LOCKSTEP_CHECK_VALUE(options.plugin.empty() || options.plugin == running->plugin(),
                         "[xla] one plugin serves a process: running=", running->plugin(), ", asked=", options.plugin);
    const int there = static_cast<int>(running->devices().size());
    LOCKSTEP_CHECK_VALUE(asked <= there || running->platform() != "cpu",
                         "[xla] the number of CPU devices is settled when the plugin starts: devices=", there,
                         ", asked=", asked, "; set LOCKSTEP_XLA_CPU_DEVICES, or ask for as many the first time");
    return *running;
  }
  ClientOptions how;
  how.plugin = options.plugin;
  how.num_cpu_devices = asked > 0 ? asked : static_cast<int>(env::integer("LOCKSTEP_XLA_CPU_DEVICES"));
  Client& started = Client::open(how);
  register_device();
  all.client.store(&started, std::memory_order_release);
  return started;
}

bool is_started() { return runtime().client.load(std::memory_order_acquire) != nullptr; }

Client& client() {
  Client* running = runtime().client.load(std::memory_order_acquire);
  LOCKSTEP_CHECK_CONTEXT(running != nullptr, "[xla] no device has been started: make a TPUStrategy, or call ",
                         "initialize_tpu_system, first");
  return *running;
}

Place& place_of(const std::vector<int>& devices) {
  Runtime& all = runtime();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int count = all.num_places.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (all.places[i]->devices() == devices) return *all.places[i];
  }
  LOCKSTEP_CHECK_VALUE(count < kMaxPlaces, "[xla] too many different groups of devices in one process: groups=", count);
  all.places[count] = std::make_unique<Place>(count, devices);
  all.num_places.store(count + 1, std::memory_order_release);
  return *all.places[count];
}

int num_places() { return runtime().num_places.load(std::memory_order_acquire); }

Place& place_at(int index) {
  LOCKSTEP_CHECK_VALUE(index >= 0 && index < num_places(), "[xla] there is no such device: device=xla:", index,
                       ", devices=", num_places(), "; make a TPUStrategy, or call initialize_tpu_system, first");
  return *runtime().places[index];
}

}  // namespace lockstep::xla
