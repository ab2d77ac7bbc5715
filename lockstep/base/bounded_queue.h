#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

/// A queue between producer and consumer threads.
///
/// ```
/// BoundedQueue<int> queue(4);
/// std::thread producer([&] {
///   for (int i = 0; i < 9 && queue.push(i); ++i) {}
///   queue.finish();
/// });
/// for (int value = 0; queue.pop(value);) use(value);
/// queue.close();  // before joining: a producer that waits for room stops
/// producer.join();
/// ```
namespace lockstep::detail {

/// Holds up to `capacity` values and exceptions, in order. Any number of threads may use it. Values are moved in and
/// out; the storage is allocated once.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : slots_(std::max<size_t>(capacity, 1)) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  /// Appends a value; waits while the queue is full. Returns false, without appending, once the queue is closed.
  bool push(T value) {
    return append([&](Slot& slot) { slot.value = std::move(value); });
  }

  /// Appends an exception in place of a value: `pop` throws it, and the next `pop` continues.
  bool push_exception(std::exception_ptr error) {
    return append([&](Slot& slot) { slot.error = std::move(error); });
  }

  /// Marks the end: `pop` returns the remaining values and then false.
  void finish() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    not_empty_.notify_all();
  }

  /// Moves the oldest entry into `value`, or throws it if it is an exception. Waits while the queue is empty. Returns
  /// false at the end: after `close`, or after `finish` when nothing is left.
  bool pop(T& value) {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [this] { return size_ > 0 || finished_ || closed_; });
    if (closed_ || size_ == 0) return false;
    Slot& slot = slots_[first_];
    first_ = first_ + 1 == slots_.size() ? 0 : first_ + 1;
    --size_;
    const std::exception_ptr error = std::exchange(slot.error, nullptr);
    if (!error) value = std::move(slot.value);
    not_full_.notify_one();
    lock.unlock();
    if (error) std::rethrow_exception(error);
    return true;
  }

  /// Closes the queue from either side: all waiting threads return, and remaining values are discarded.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  size_t capacity() const { return slots_.size(); }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return size_;
  }

 private:
  struct Slot {
    T value{};
    std::exception_ptr error;
  };

  template <class Fill>
  bool append(Fill&& fill) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [this] { return size_ < slots_.size() || closed_; });
    if (closed_) return false;
    fill(slots_[(first_ + size_) % slots_.size()]);
    ++size_;
    not_empty_.notify_one();
    return true;
  }

  mutable std::mutex mutex_;
  std::condition_variable not_full_;
  std::condition_variable not_empty_;
  std::vector<Slot> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
  bool finished_ = false;
  bool closed_ = false;
};

}  // namespace lockstep::detail
