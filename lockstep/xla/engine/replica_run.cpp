#include "lockstep/xla/engine/replica_run.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/xla/engine/backward_thread.h"
#include "lockstep/xla/engine/execute.h"

namespace lockstep::xla {

namespace {

uint64_t next_run_id() {
  static std::atomic<uint64_t> runs{0};
  return ++runs;
}

}  // namespace

ReplicaRun::ReplicaRun(std::vector<XlaDevice*> devices, RunSettings settings)
    : id_(next_run_id()), devices_(std::move(devices)), settings_(std::move(settings)) {
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    XlaDevice& device = *devices_[replica];
    outer_.emplace_back(device.run.load(), device.replica, device.settings);
    device.run = this;
    device.run_id = id_;
    device.replica = static_cast<int>(replica);
    device.settings = &settings_;
  }
}

ReplicaRun::~ReplicaRun() {
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    XlaDevice& device = *devices_[replica];
    device.close_collectives();
    ReplicaRun* outer = nullptr;
    std::tie(outer, device.replica, device.settings) = outer_[replica];
    device.run = outer;
    device.run_id = outer == nullptr ? 0 : outer->id_;
  }
}

void ReplicaRun::finish() {
  std::vector<PendingWork> works = take_pending(devices_);
  execute_together(works);
  for (XlaDevice* device : devices_) {
    device->close_collectives();
    device->forget_written();
  }
}

void ReplicaRun::synchronize(int replica) {
  // Others must not wait for this thread's backward pass: it waits for them.
  if (is_backward_thread()) devices_[static_cast<size_t>(replica)]->forget_backward();
  std::unique_lock<std::mutex> lock(mutex_);
  const auto check_all_there = [&] {
    LOCKSTEP_CHECK_COLLECTIVE(left_ < 0, "[run] replica ", replica, " wants a value that needs all replicas, but ",
                              "replica ", left_, " has ended; read such values in all of them");
  };
  check_all_there();
  const uint64_t round = round_;
  if (++arrived_ == devices_.size()) {
    error_ = nullptr;
    try {
      finish();
    } catch (...) {
      error_ = std::current_exception();
    }
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    wait_for_others(replica, lock, [&] { return round_ != round || left_ >= 0; });
    if (round_ == round) check_all_there();
  }
  if (error_) std::rethrow_exception(error_);
}

/// Throws if they do not come in time. The run then goes on without this replica, so that no other one waits for it.
void ReplicaRun::wait_for_others(int replica, std::unique_lock<std::mutex>& lock,
                                 const std::function<bool()>& is_over) {
  const auto given = devices_[static_cast<size_t>(replica)]->shortest_timeout();
  const auto timeout = given.count() > 0 ? given : env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
  if (timeout.count() == 0) return changed_.wait(lock, is_over);
  if (changed_.wait_for(lock, timeout, is_over)) return;
  const size_t arrived = arrived_--;
  if (left_ < 0) left_ = replica;
  changed_.notify_all();
  LOCKSTEP_THROW(CollectiveError, "[run] replica ", replica, " waited ", static_cast<double>(timeout.count()) / 1000,
                 " s for the others to read a value: ", arrived, " of ", devices_.size(), " have come; set ",
                 given.count() > 0 ? "timeout_seconds" : "LOCKSTEP_COLLECTIVE_TIMEOUT", " to wait longer");
}

void ReplicaRun::leave(int replica) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (left_ < 0) left_ = replica;
  changed_.notify_all();
}

ReplicaDevices::ReplicaDevices(const std::vector<std::vector<int>>& plugin_devices) {
  for (const auto& of_replica : plugin_devices) devices_.push_back(&device_of(of_replica));
}

ReplayedRun::ReplayedRun(const std::vector<XlaDevice*>& devices) : devices_(devices), id_(next_run_id()), thread_(id_) {
  for (XlaDevice* device : devices_) outer_.push_back(device->run_id.exchange(id_));
}

ReplayedRun::~ReplayedRun() {
  for (size_t i = 0; i < devices_.size(); ++i) devices_[i]->run_id = outer_[i];
}

void execute_before_run(XlaDevice& device) {
  const uint64_t rolled_back = device.num_rolled_back();
  try {
    execute_pending(device);
  } catch (const std::exception& error) {
    if (device.run.load() != nullptr || device.num_rolled_back() != rolled_back) throw;
    LOCKSTEP_LOG(Warn) << "tensors of " << device.torch_device().str()
                       << " could not be computed before a run, and are lost: " << error.what();
  }
}

std::unique_ptr<ReplicaRun> ReplicaDevices::begin(RunSettings settings) const {
  for (XlaDevice* device : devices_) {
    execute_before_run(*device);
    device->begin_run();
  }
  return std::make_unique<ReplicaRun>(devices_, std::move(settings));
}

void ReplicaDevices::roll_back(const std::string& why) const {
  const std::string text = "it was to be computed in a run that failed (" + why.substr(0, why.find('\n')) + ")";
  for (XlaDevice* device : devices_) device->roll_back(text);
}

namespace {

void execute_alone_or_together(XlaDevice& device) {
  PendingWork work = std::move(take_pending({&device})[0]);
  const bool takes_part = device.run != nullptr && !device.open_collectives().empty();
  if (work.empty() && !takes_part) return;
  if (work.trace().needs_others || takes_part) {
    LOCKSTEP_CHECK_CONTEXT(
        device.run.load() != nullptr,
        "[xla] a value was computed with those of other replicas in a run that failed, and is lost: ", "device=",
        device.torch_device(), "; compute it again");
    ReplicaRun& run = *device.run.load();
    { const PendingWork put_back = std::move(work); }
    return run.synchronize(device.replica);
  }
  if (listener() != nullptr && device.run.load() != nullptr)
    listener()->on_separate_execution("the function reads values of tensors");
  std::vector<PendingWork> alone;
  alone.push_back(std::move(work));
  execute_together(alone);
}

}  // namespace

void execute_device(XlaDevice& device) {
  try {
    execute_alone_or_together(device);
  } catch (const std::exception& error) {
    // A failed run is undone when it ends.
    const std::string text = error.what();
    if (device.run.load() == nullptr)
      device.roll_back("its execution failed (" + text.substr(0, text.find('\n')) + ")");
    throw;
  }
}

}  // namespace lockstep::xla
