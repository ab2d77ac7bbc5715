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

/// Inside: threads that read ahead in several iterators at a time.
namespace lockstep::data::detail {

/// An iterator that threads read for whoever asks.
class ReadAheadIterator : public NodeIterator {
 public:
  /// Waits until the iterator behind it is open; throws what opening it threw.
  virtual void wait_until_open() = 0;
};

/// A few threads that keep up to `buffer_size` elements of every iterator that was added.
///
/// Protocol, all of it under one lock except opening and reading:
///   1. an iterator that has room, and is not at its end, is in the queue once, or in the hands of one thread;
///   2. a thread takes the first of the queue, opens it if need be, and reads until it is full or at its end;
///   3. whoever takes an element from a full one puts it into the queue again.
class ReadAheadThreads {
 public:
  using Open = std::function<std::unique_ptr<NodeIterator>()>;

  ReadAheadThreads(int num_threads, size_t buffer_size);
  /// Ends the threads as soon as what they are reading is there.
  ~ReadAheadThreads();

  /// Starts to read what `open`, which is called by one of the threads, returns. The iterators that this returns must
  /// be used by one thread and not after the end of this object.
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
