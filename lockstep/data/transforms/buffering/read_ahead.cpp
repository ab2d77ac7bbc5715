#include "lockstep/data/transforms/buffering/read_ahead.h"

#include <utility>

#include <ATen/ThreadLocalState.h>

#include "lockstep/device/thread_share.h"

namespace lockstep::data::detail {

/// One iterator. All members but `iterator` and `open` are guarded by the mutex of the threads.
struct ReadAheadThreads::Channel {
  Open open;
  std::unique_ptr<NodeIterator> iterator;
  bool is_open = false;
  std::exception_ptr open_error;
  std::deque<Item> items;
  bool ended = false;
  /// Whether it is in the queue or owned by a thread.
  bool is_scheduled = true;
};

class ReadAheadThreads::Handle final : public ReadAheadIterator {
 public:
  Handle(ReadAheadThreads& threads, std::shared_ptr<Channel> channel)
      : threads_(threads), channel_(std::move(channel)) {}

  void wait_until_open() override {
    std::unique_lock lock(threads_.mutex_);
    threads_.ready_.wait(lock, [&] { return channel_->is_open; });
    if (channel_->open_error) std::rethrow_exception(channel_->open_error);
  }

  bool next(Element& element) override {
    Item item;
    {
      std::unique_lock lock(threads_.mutex_);
      threads_.ready_.wait(lock, [&] { return !channel_->items.empty() || channel_->ended; });
      if (channel_->items.empty()) return false;
      item = std::move(channel_->items.front());
      channel_->items.pop_front();
      if (!channel_->ended && !std::exchange(channel_->is_scheduled, true)) {
        threads_.queue_.push_back(channel_);
        threads_.work_.notify_one();
      }
    }
    if (item.error) std::rethrow_exception(item.error);
    element = std::move(item.element);
    return true;
  }

 private:
  ReadAheadThreads& threads_;
  std::shared_ptr<Channel> channel_;
};

ReadAheadThreads::ReadAheadThreads(int num_threads, size_t buffer_size) : buffer_size_(buffer_size) {
  const at::ThreadLocalState caller;
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, caller] {
      const at::ThreadLocalStateGuard state(caller);
      const lockstep::detail::ThreadShare share(1);
      work();
    });
  }
}

ReadAheadThreads::~ReadAheadThreads() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::unique_ptr<ReadAheadIterator> ReadAheadThreads::add(Open open) {
  auto channel = std::make_shared<Channel>();
  channel->open = std::move(open);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(channel);
  }
  work_.notify_one();
  return std::make_unique<Handle>(*this, std::move(channel));
}

void ReadAheadThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (closed_) return;
    const std::shared_ptr<Channel> channel = std::move(queue_.front());
    queue_.pop_front();
    fill(channel, lock);
  }
}

void ReadAheadThreads::fill(const std::shared_ptr<Channel>& channel, std::unique_lock<std::mutex>& lock) {
  if (!channel->is_open) {
    lock.unlock();
    std::exception_ptr error;
    try {
      channel->iterator = std::exchange(channel->open, nullptr)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    channel->is_open = true;
    channel->ended = error != nullptr;
    channel->open_error = std::move(error);
    ready_.notify_all();
  }
  while (!closed_ && !channel->ended && channel->items.size() < buffer_size_) {
    lock.unlock();
    Item item;
    bool found = true;
    try {
      found = channel->iterator->next(item.element);
    } catch (...) {
      item.error = std::current_exception();
    }
    lock.lock();
    channel->ended = !found;
    if (found) channel->items.push_back(std::move(item));
    ready_.notify_all();
  }
  channel->is_scheduled = false;
}

}  // namespace lockstep::data::detail
