#include "lockstep/comm/engines/nccl/detached_calls.h"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::comm {

size_t call_detached(std::vector<std::function<void()>> calls, std::chrono::milliseconds limit) {
  struct Left {
    std::mutex mutex;
    std::condition_variable changed;
    size_t count;
  };
  const auto left = std::make_shared<Left>();
  left->count = calls.size();
  size_t num_not_made = 0;
  for (auto& call : calls) {
    const std::function<void()> make = [call = std::make_shared<std::function<void()>>(std::move(call)), left] {
      try {
        (*call)();
      } catch (const std::exception& error) {
        LOCKSTEP_LOG(Error) << "[nccl] " << error.what();
      }
      *call = nullptr;  // what it holds ends before it counts as returned
      const std::lock_guard lock(left->mutex);
      --left->count;
      left->changed.notify_all();
    };
    try {
      std::thread(make).detach();
    } catch (const std::system_error& error) {  // there may be no more threads
      LOCKSTEP_LOG(Error) << "[nccl] no thread could be made: " << error.what();
      const std::lock_guard lock(left->mutex);
      --left->count;
      ++num_not_made;
    }
  }
  std::unique_lock lock(left->mutex);
  left->changed.wait_for(lock, limit, [&] { return left->count == 0; });
  return left->count + num_not_made;
}

}  // namespace lockstep::comm
