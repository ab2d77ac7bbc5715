#include "lockstep/device/process_task.h"

#include <mutex>

namespace lockstep {
namespace {

struct Current {
  std::mutex mutex;
  ProcessTask task;
};

Current& current() {
  static auto* instance = new Current;  // never destroyed: replica threads may outlive static objects
  return *instance;
}

}  // namespace

ProcessTask process_task() {
  const std::lock_guard lock(current().mutex);
  return current().task;
}

void set_process_task(const ProcessTask& task) {
  const std::lock_guard lock(current().mutex);
  current().task = task;
}

}  // namespace lockstep
