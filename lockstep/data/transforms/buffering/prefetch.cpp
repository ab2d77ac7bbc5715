#include <exception>
#include <thread>

#include <ATen/ThreadLocalState.h>

#include "lockstep/base/bounded_queue.h"
#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/device/thread_share.h"

namespace lockstep::data::detail {
namespace {

class PrefetchIterator final : public NodeIterator {
 public:
  PrefetchIterator(std::unique_ptr<NodeIterator> input, int64_t buffer_size)
      : input_(std::move(input)), queue_(static_cast<size_t>(buffer_size)) {}

  ~PrefetchIterator() override {
    queue_.close();
    if (thread_.joinable()) thread_.join();
  }

  bool next(Element& element) override {
    start();
    return queue_.pop(element);
  }

  /// Before the thread starts nothing is prefetched.
  int64_t skip(int64_t count) override { return thread_.joinable() ? NodeIterator::skip(count) : input_->skip(count); }

 private:
  void start() {
    if (thread_.joinable()) return;
    thread_ = std::thread([this, caller = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard state(caller);
      const lockstep::detail::ThreadShare share(1);
      while (push_next()) {
      }
      queue_.finish();
    });
  }

  /// Moves one element into the queue; false at the end or when the queue is closed.
  bool push_next() {
    Element element;
    try {
      if (!input_->next(element)) return false;
    } catch (...) {
      return queue_.push_exception(std::current_exception());
    }
    return queue_.push(std::move(element));
  }

  std::unique_ptr<NodeIterator> input_;
  lockstep::detail::BoundedQueue<Element> queue_;
  std::thread thread_;
};

class PrefetchNode final : public UnaryNode {
 public:
  PrefetchNode(NodePtr input, int64_t buffer_size) : UnaryNode(std::move(input)), buffer_size_(buffer_size) {}

  std::string name() const override { return c10::str("prefetch(", buffer_size_, ")"); }
  Role role() const override { return Role::Trailing; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<PrefetchNode>(std::move(inputs[0]), buffer_size_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    if (buffer_size_ == 0) return input()->iterator(iteration);
    return std::make_unique<PrefetchIterator>(input()->iterator(iteration), buffer_size_);
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  int64_t buffer_size_;
};

}  // namespace

NodePtr make_prefetch(NodePtr input, int64_t buffer_size) {
  LOCKSTEP_CHECK_VALUE(buffer_size >= 0, "[prefetch] the buffer must not be negative: buffer_size=", buffer_size);
  return make_node<PrefetchNode>(std::move(input), buffer_size);
}

}  // namespace lockstep::data::detail
