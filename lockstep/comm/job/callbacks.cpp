#include "lockstep/comm/job/callbacks.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::comm::job {
namespace {

struct Entry {
  uint64_t id = 0;
  std::function<void()> function;
  bool is_due = false;
};

void call(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    LOCKSTEP_LOG(Error) << "a callback for changes of a job failed: " << error.what();
  }
}

}  // namespace

struct Callbacks::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Entry> entries;
  uint64_t last_id = 0;
  uint64_t running = 0;
  std::thread::id thread;
  bool is_stopped = false;

  void remove(uint64_t id) {
    // Destroyed after the lock is released: what the function owns may call `remove`.
    std::list<Entry> removed;
    std::unique_lock lock(mutex);
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.id == id; });
    if (found != entries.end()) removed.splice(removed.end(), entries, found);
    if (std::this_thread::get_id() != thread) changed.wait(lock, [&] { return running != id; });
  }
};

Callbacks::Callbacks() : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_] { run(*state); });
  const std::lock_guard lock(state_->mutex);
  state_->thread = thread_.get_id();
}

Callbacks::~Callbacks() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopped = true;
    state_->changed.notify_all();
  }
  // A function may own the last reference to the owner of this object.
  if (std::this_thread::get_id() == thread_.get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Callbacks::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    auto due = state.entries.end();
    state.changed.wait(lock, [&] {
      due = std::find_if(state.entries.begin(), state.entries.end(), [](const Entry& entry) { return entry.is_due; });
      return state.is_stopped || due != state.entries.end();
    });
    if (state.is_stopped) return;
    due->is_due = false;
    state.running = due->id;
    auto function = due->function;
    lock.unlock();
    call(function);
    function = nullptr;
    lock.lock();
    state.running = 0;
    state.changed.notify_all();
  }
}

std::shared_ptr<void> Callbacks::add(std::function<void()> function, bool is_due) {
  const std::lock_guard lock(state_->mutex);
  const uint64_t id = ++state_->last_id;
  state_->entries.push_back({id, std::move(function), is_due});
  state_->changed.notify_all();
  return {reinterpret_cast<void*>(id), [state = state_, id](void*) { state->remove(id); }};
}

void Callbacks::call_all() {
  const std::lock_guard lock(state_->mutex);
  for (auto& entry : state_->entries) entry.is_due = true;
  state_->changed.notify_all();
}

}  // namespace lockstep::comm::job
