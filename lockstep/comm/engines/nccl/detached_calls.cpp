#include "lockstep/comm/engines/nccl/detached_calls.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::comm {

size_t call_detached(std::vector<std::function<void()>> calls, std::chrono::milliseconds limit) {
  struct Left {
    std::mutex mutex;
    std::condition_variable changed;
    size_t count;
  };
  const auto left = std::make_shared<Left>();
  left->count = calls.size();
  for (auto& call : calls) {
    std::thread([call = std::move(call), left]() mutable {
      call();
      call = nullptr;  // what it holds ends before it counts as returned
      const std::lock_guard lock(left->mutex);
      --left->count;
      left->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(left->mutex);
  left->changed.wait_for(lock, limit, [&] { return left->count == 0; });
  return left->count;
}

}  // namespace lockstep::comm
