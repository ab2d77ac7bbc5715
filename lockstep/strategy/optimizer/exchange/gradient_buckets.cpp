#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {

struct GradientBuckets::State {
  struct Bucket {
    std::vector<size_t> parameters;
    size_t missing = 0;
    /// Happens when the device has computed the gradients; none on a CPU.
    std::optional<c10::Event> computed;
  };

  static constexpr size_t kNone = ~size_t{0};

  std::vector<at::Tensor> parameters;
  Send send_gradients;
  std::vector<Bucket> buckets;
  /// The bucket of each parameter, or kNone.
  std::vector<size_t> bucket_of;
  std::vector<char> filled_by_backward;
  std::vector<size_t> filled_with_zeros;
  /// What LibTorch calls when it has written a gradient. A parameter has only a weak reference to its own.
  std::vector<decltype(torch::autograd::impl::grad_accumulator(at::Tensor()))> accumulators;
  bool begun = false;
  size_t next = 0;
  /// Where the user started this backward pass, and for which optimizer.
  comm::CallSite site;
  comm::CollectiveOwner owner;

  std::mutex mutex;
  std::condition_variable changed;
  size_t asked = 0;
  size_t done = 0;
  bool stopping = false;
  /// Whether it is the turn of these buckets; those that wait for the end of these.
  bool has_turn = true;
  std::weak_ptr<State> next_turn;
  std::exception_ptr failure;
  const int replica = trace::current_replica();
  trace::BackgroundWaits waits;
  std::thread thread;

  State(std::vector<at::Tensor> given, Send send) : parameters(std::move(given)), send_gradients(std::move(send)) {}

  void fill_buckets(const std::vector<char>& taken, int64_t bytes_per_bucket);
  void gradient_is_ready(size_t parameter, const std::vector<at::Tensor>& received);
  void send_full_buckets();
  void send(size_t count);
  void serve();
  uint64_t bytes_of(const Bucket& bucket) const;
  void complete(const Bucket& bucket);
  void send_now(Bucket& bucket);
  void take_turn();
  void wait();
};

namespace {

using Variables = torch::autograd::variable_list;

/// Large enough that bandwidth, not latency, decides; small enough that the first bucket is sent early.
constexpr int64_t kBytesPerBucket = 4 << 20;

/// Called by LibTorch after a parameter's gradient has been written.
class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(std::weak_ptr<GradientBuckets::State> state, size_t parameter)
      : state_(std::move(state)), parameter_(parameter) {}

  Variables operator()(const Variables& outputs, const Variables& inputs) override {
    if (const auto state = state_.lock()) state->gradient_is_ready(parameter_, inputs);
    return outputs;
  }

 private:
  std::weak_ptr<GradientBuckets::State> state_;
  size_t parameter_;
};

}  // namespace

void GradientBuckets::State::fill_buckets(const std::vector<char>& taken, int64_t bytes_per_bucket) {
  bucket_of.assign(parameters.size(), kNone);
  filled_by_backward.assign(parameters.size(), 0);
  int64_t bytes = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  for (size_t p = parameters.size(); p-- > 0;) {
    if (taken[p] == 0) continue;
    if (buckets.empty() || bytes >= bytes_per_bucket || parameters[p].scalar_type() != dtype) {
      buckets.emplace_back();
      bytes = 0;
      dtype = parameters[p].scalar_type();
    }
    bucket_of[p] = buckets.size() - 1;
    buckets.back().parameters.push_back(p);
    bytes += static_cast<int64_t>(parameters[p].nbytes());
  }
}

void GradientBuckets::State::gradient_is_ready(size_t parameter, const std::vector<at::Tensor>& received) {
  if (!begun) return;
  LOCKSTEP_CHECK_IMPLEMENTED(filled_by_backward[parameter] == 0, "[minimize] backward reached a parameter twice, as ",
                             "nested backward passes do: parameter=", parameter,
                             "; call loss.backward() and step() in place of minimize()");
  filled_by_backward[parameter] = 1;
  separate_from_graph(parameters[parameter].mutable_grad(), received);
  --buckets[bucket_of[parameter]].missing;
  send_full_buckets();
}

void GradientBuckets::State::send_full_buckets() {
  size_t full = next;
  while (full < buckets.size() && buckets[full].missing == 0) ++full;
  if (full > next) send(full);
}

void GradientBuckets::State::send(size_t count) {
  const c10::Device device = parameters[0].device();
  for (; next < count; ++next) {
    if (device.is_cpu()) continue;
    auto& computed = buckets[next].computed;
    computed.emplace(device.type());
    computed->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  const std::lock_guard lock(mutex);
  asked = count;
  changed.notify_all();
}

void GradientBuckets::State::serve() {
  c10::setThreadName("gradients");
  trace::set_background_thread("gradients of local replica " + std::to_string(std::max(replica, 0)), &waits);
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || (done < asked && has_turn && !failure); });
    if (stopping) return;
    const size_t bucket = done;
    const auto following = bucket + 1 == buckets.size() ? next_turn.lock() : nullptr;
    const comm::CallSiteScope caller(site);
    const comm::CollectiveOwnerScope of_optimizer(owner);
    lock.unlock();
    std::exception_ptr error;
    try {
      send_now(buckets[bucket]);
      if (following) following->take_turn();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) failure = error;
    ++done;
    changed.notify_all();
  }
}

uint64_t GradientBuckets::State::bytes_of(const Bucket& bucket) const {
  uint64_t bytes = 0;
  for (const size_t p : bucket.parameters) bytes += parameters[p].nbytes();
  return bytes;
}

/// Buckets were made for dense gradients. Other steps may leave sparse ones, or none.
void GradientBuckets::State::complete(const Bucket& bucket) {
  for (const size_t p : bucket.parameters) {
    at::Tensor& gradient = parameters[p].mutable_grad();
    if (!gradient.defined()) {
      set_zero_gradient(parameters[p]);
      filled_with_zeros.push_back(p);
    } else if (gradient.is_sparse()) {
      gradient = gradient.to_dense();
    }
  }
}

void GradientBuckets::State::send_now(Bucket& bucket) {
  const trace::Span span(trace::Phase::Communication, "bucket", trace::is_on() ? bytes_of(bucket) : 0);
  if (!bucket.computed) {
    complete(bucket);
    return send_gradients(bucket.parameters);
  }
  const c10::Device device = parameters[bucket.parameters[0]].device();
  const c10::impl::VirtualGuardImpl runtime(device.type());
  const c10::Stream stream = runtime.getStream(device);
  bucket.computed->block(stream);
  complete(bucket);
  send_gradients(bucket.parameters);
  stream.synchronize();
}

void GradientBuckets::State::take_turn() {
  const std::lock_guard lock(mutex);
  has_turn = true;
  changed.notify_all();
}

void GradientBuckets::State::wait() {
  const trace::BackgroundSpan span(waits, "wait for buckets");
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return failure || done == asked; });
  if (failure) std::rethrow_exception(failure);
}

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken,
                                 int64_t bytes_per_bucket, Send send)
    : state_(std::make_shared<State>(std::move(parameters), std::move(send))) {
  state_->fill_buckets(taken, bytes_per_bucket);
  for (size_t p = 0; p < state_->parameters.size(); ++p) {
    if (!holds(p)) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(state_->parameters[p]);
    accumulator->add_post_hook(std::make_unique<GradientHook>(state_, p));
    state_->accumulators.push_back(std::move(accumulator));
  }
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

GradientBuckets::~GradientBuckets() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
}

bool GradientBuckets::holds(size_t parameter) const { return state_->bucket_of[parameter] != State::kNone; }
size_t GradientBuckets::num_buckets() const { return state_->buckets.size(); }
bool GradientBuckets::is_begun() const { return state_->begun; }
const std::vector<size_t>& GradientBuckets::filled_with_zeros() const { return state_->filled_with_zeros; }

void GradientBuckets::begin(GradientBuckets* after) {
  for (auto& bucket : state_->buckets) bucket.missing = bucket.parameters.size();
  std::fill(state_->filled_by_backward.begin(), state_->filled_by_backward.end(), 0);
  state_->filled_with_zeros.clear();
  state_->next = 0;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->failure || state_->done == state_->asked; });
  state_->site = comm::CallSite::current();
  state_->owner = comm::CollectiveOwner::current();
  state_->asked = 0;
  state_->done = 0;
  state_->failure = nullptr;
  state_->begun = true;
  state_->next_turn.reset();
  state_->has_turn = after == nullptr || after->num_buckets() == 0;
  lock.unlock();
  if (state_->has_turn) return;
  const std::lock_guard before(after->state_->mutex);
  after->state_->next_turn = state_;
}

void GradientBuckets::finish() {
  state_->begun = false;
  state_->send(state_->buckets.size());
  state_->wait();
}

void GradientBuckets::abandon() {
  state_->begun = false;
  std::unique_lock lock(state_->mutex);
  if (!state_->has_turn) state_->asked = state_->done;
  state_->changed.wait(lock, [&] { return state_->failure || state_->done == state_->asked; });
}

std::unique_ptr<GradientBuckets> make_buckets(const std::vector<at::Tensor>& parameters,
                                              const std::vector<char>& present, GradientBuckets::Send send,
                                              int64_t bytes_per_bucket) {
  std::vector<char> taken(present.size(), 0);
  for (size_t p = 0; p < present.size(); ++p) {
    taken[p] = present[p] == kDense && parameters[p].requires_grad() && parameters[p].is_leaf() ? 1 : 0;
  }
  const int64_t bytes = bytes_per_bucket > 0 ? bytes_per_bucket : kBytesPerBucket;
  return std::make_unique<GradientBuckets>(parameters, taken, bytes, std::move(send));
}

}  // namespace lockstep::detail
