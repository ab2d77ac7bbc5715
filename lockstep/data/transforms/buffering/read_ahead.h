#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/data/node.h"

/// Internal: threads that prefetch from several iterators.
namespace lockstep::data::detail {

/// An iterator whose elements are prefetched by threads.
class ReadAheadIterator : public NodeIterator {
 public:
  /// Waits until the underlying iterator is open; rethrows the exception of opening it.
  virtual void wait_until_open() = 0;
};

/// Threads that prefetch up to `buffer_size` elements of every added iterator.
///
/// Protocol, under one lock except for opening and reading:
///   1. an iterator with room in its buffer, not at its end, is in the queue once, or owned by one thread;
///   2. a thread takes the first iterator of the queue, opens it if necessary, and reads until the buffer is full or
///   the
///      iterator at its end;
///   3. the consumer that takes an element from a full buffer puts the iterator into the queue again.
class ReadAheadThreads {
 public:
  using Open = std::function<std::unique_ptr<NodeIterator>()>;

  ReadAheadThreads(int num_threads, size_t buffer_size);
  /// Stops the threads after the elements that they are reading.
  ~ReadAheadThreads();

  /// Starts to prefetch from the iterator that `open`, called by one of the threads, returns. The returned iterator is
  /// for one thread and must not outlive this object.
  std::unique_ptr<ReadAheadIterator> add(Open open);

 private:
  struct Channel;
  class Handle;
  struct Item {
    Element element;
    std::exception_ptr error;
  };

  void work();
  void fill(const std::shared_ptr<Channel>& channel, std::unique_lock<std::mutex>& lock);

  const size_t buffer_size_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ready_;
  std::deque<std::shared_ptr<Channel>> queue_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::data::detail
