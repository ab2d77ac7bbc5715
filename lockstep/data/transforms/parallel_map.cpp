#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/ThreadLocalState.h>

#include "lockstep/data/transforms/map.h"
#include "lockstep/device/thread_share.h"

namespace lockstep::data::detail {
namespace {

/// The duration of a chunk of work: long enough to make the cost of handing it over negligible.
constexpr std::chrono::nanoseconds kChunkTime = std::chrono::microseconds(50);
constexpr int64_t kMaxChunk = 64;

struct Item {
  Element element;
  std::exception_ptr error;
};

/// Consecutive elements that one thread works on.
struct Chunk {
  std::vector<Item> items;
  size_t next = 0;
  bool done = false;
};

/// Protocol:
///   1. a worker waits until the buffer has room, then takes the next chunk of the input; only one worker at a time
///   does
///      so, so chunks are in the order of the input;
///   2. it computes the results, outside of any lock, and marks the chunk as done;
///   3. the consumer takes items from the oldest chunk once it is done or, unordered, from any done chunk.
class ParallelMapIterator final : public NodeIterator {
 public:
  ParallelMapIterator(std::unique_ptr<NodeIterator> input, MapFunction fn, const MapOptions& options)
      : input_(std::move(input)), fn_(std::move(fn)), options_(options) {}

  ~ParallelMapIterator() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool next(Element& element) override {
    start();
    Item* item = next_item();
    if (item == nullptr) return false;
    if (item->error) std::rethrow_exception(item->error);
    element = std::move(item->element);
    return true;
  }

  /// Before the threads start nothing is prefetched, so the input itself can skip. Afterwards errors are skipped with
  /// their elements.
  int64_t skip(int64_t count) override {
    if (!threads_.empty()) {
      int64_t skipped = 0;
      for (; skipped < count; ++skipped) {
        if (next_item() == nullptr) break;
      }
      return skipped;
    }
    const int64_t skipped = input_->skip(count);
    ordinal_ += skipped;
    return skipped;
  }

 private:
  /// Returns the next result once it is made; null at the end.
  Item* next_item() {
    while (!current_ || current_->next == current_->items.size()) {
      if (!take_chunk()) return nullptr;
    }
    return &current_->items[current_->next++];
  }

  void start() {
    if (!threads_.empty()) return;
    const at::ThreadLocalState caller;
    for (int i = 0; i < options_.num_threads; ++i) {
      threads_.emplace_back([this, caller] {
        const at::ThreadLocalStateGuard state(caller);
        const lockstep::detail::ThreadShare share(1);
        work();
      });
    }
  }

  void work() {
    MapFunction fn = fn_;
    while (true) {
      int64_t first = 0;
      const std::shared_ptr<Chunk> chunk = read_chunk(first);
      if (!chunk) return;
      const auto begin = std::chrono::steady_clock::now();
      for (size_t i = 0; i < chunk->items.size(); ++i) apply(fn, first + static_cast<int64_t>(i), chunk->items[i]);
      finish(*chunk, std::chrono::steady_clock::now() - begin);
    }
  }

  static void apply(MapFunction& fn, int64_t ordinal, Item& item) {
    if (item.error) return;
    try {
      Element out;
      fn(ordinal, item.element, out);
      item.element = std::move(out);
    } catch (...) {
      item.error = std::current_exception();
    }
  }

  /// Reads the next chunk of the input. Returns nothing at its end, or when the iterator is destroyed.
  std::shared_ptr<Chunk> read_chunk(int64_t& first) {
    const std::lock_guard reading(input_mutex_);
    int64_t size = 0;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return closed_ || waiting_ + chunk_size_ <= limit(); });
      if (closed_ || input_ended_) return nullptr;
      size = chunk_size_;
    }
    auto chunk = std::make_shared<Chunk>();
    const bool ended = !read_items(*chunk, size);
    first = ordinal_;
    ordinal_ += static_cast<int64_t>(chunk->items.size());
    const std::lock_guard lock(mutex_);
    input_ended_ = ended;
    if (ended) ready_.notify_one();
    if (chunk->items.empty()) return nullptr;
    waiting_ += static_cast<int64_t>(chunk->items.size());
    chunks_.push_back(chunk);
    return chunk;
  }

  bool read_items(Chunk& chunk, int64_t size) {
    chunk.items.reserve(size);
    for (int64_t i = 0; i < size; ++i) {
      Item item;
      try {
        if (!input_->next(item.element)) return false;
      } catch (...) {
        item.error = std::current_exception();
      }
      chunk.items.push_back(std::move(item));
      if (chunk.items.back().error) break;
    }
    return true;
  }

  void finish(Chunk& chunk, std::chrono::nanoseconds time) {
    const std::lock_guard lock(mutex_);
    chunk.done = true;
    const int64_t wanted = kChunkTime * static_cast<int64_t>(chunk.items.size()) / std::max(time, decltype(time)(1));
    chunk_size_ = std::clamp<int64_t>(wanted, 1, largest_chunk());
    ready_.notify_one();
  }

  /// Makes the next chunk current, or returns false at the end.
  bool take_chunk() {
    std::unique_lock lock(mutex_);
    auto found = chunks_.end();
    ready_.wait(lock, [&] {
      found = options_.ordered ? chunks_.begin()
                               : std::find_if(chunks_.begin(), chunks_.end(), [](const auto& c) { return c->done; });
      if (found != chunks_.end() && (*found)->done) return true;
      return chunks_.empty() && input_ended_;
    });
    if (chunks_.empty()) return false;
    current_ = *found;
    chunks_.erase(found);
    waiting_ -= static_cast<int64_t>(current_->items.size());
    room_.notify_one();
    return true;
  }

  /// How many elements may be in flight or buffered.
  int64_t limit() const {
    if (options_.buffer_size > 0) return std::max<int64_t>(options_.buffer_size, 1);
    return 2 * options_.num_threads * chunk_size_;
  }
  int64_t largest_chunk() const {
    if (options_.buffer_size == 0) return kMaxChunk;
    return std::clamp<int64_t>(options_.buffer_size / options_.num_threads, 1, kMaxChunk);
  }

  // The input; guarded by input_mutex_ once threads run.
  std::mutex input_mutex_;
  std::unique_ptr<NodeIterator> input_;
  int64_t ordinal_ = 0;

  const MapFunction fn_;
  const MapOptions options_;
  std::shared_ptr<Chunk> current_;

  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable ready_;
  std::deque<std::shared_ptr<Chunk>> chunks_;
  int64_t chunk_size_ = 1;
  int64_t waiting_ = 0;
  bool input_ended_ = false;
  bool closed_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<NodeIterator> make_parallel_map_iterator(std::unique_ptr<NodeIterator> input, MapFunction fn,
                                                         const MapOptions& options) {
  return std::make_unique<ParallelMapIterator>(std::move(input), std::move(fn), options);
}

}  // namespace lockstep::data::detail
