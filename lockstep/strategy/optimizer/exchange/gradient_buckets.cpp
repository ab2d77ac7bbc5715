#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/thread_name.h>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/device/stream.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/gradient_hooks.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {

struct GradientBuckets::State {
  struct Bucket {
    std::vector<size_t> parameters;
    size_t missing = 0;
    /// The streams that compute the gradients, and what happens when they have; none on a CPU.
    std::vector<c10::Stream> streams;
    std::vector<StreamEvent> computed;
  };

  static constexpr size_t kNone = ~size_t{0};

  std::vector<at::Tensor> parameters;
  const BucketOptions options;
  Send send_gradients;
  std::vector<Bucket> buckets;
  /// Where buckets are prepared by the thread that computes them: what their own stream has queued so far.
  std::optional<StreamEvent> queued;
  /// The bucket of each parameter, or kNone.
  std::vector<size_t> bucket_of;
  std::vector<char> filled_by_backward;
  std::vector<size_t> filled_with_zeros;
  GradientHooks hooks;
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

  State(std::vector<at::Tensor> given, BucketOptions how, Send send)
      : parameters(std::move(given)), options(std::move(how)), send_gradients(std::move(send)) {}

  std::vector<size_t> order(const std::vector<char>& taken) const;
  void fill_buckets(const std::vector<char>& taken);
  bool is_on_device() const { return !parameters.empty() && !parameters[0].is_cpu(); }
  /// Whether nobody waits for the device on the host.
  bool only_queues() const { return options.prepare != nullptr; }
  void gradient_is_ready(size_t parameter, const std::vector<at::Tensor>& received);
  void send_full_buckets();
  void send(size_t count);
  void note_stream(Bucket& bucket) const;
  void record(Bucket& bucket) const;
  void follow_streams(Bucket& bucket) const;
  void serve();
  void serve_on_device();
  uint64_t bytes_of(const Bucket& bucket) const;
  void complete(const Bucket& bucket);
  void send_now(Bucket& bucket);
  void queue_now(Bucket& bucket);
  void take_turn();
  void wait();
  void follow_queued();
};

namespace {

/// Large enough that bandwidth, not latency, decides; small enough that the first bucket is sent early.
constexpr int64_t kBytesPerBucket = 4 << 20;

}  // namespace

std::vector<size_t> GradientBuckets::State::order(const std::vector<char>& taken) const {
  std::vector<size_t> ordered;
  std::vector<char> left = taken;
  const auto take = [&](size_t p) {
    if (std::exchange(left[p], char(0)) != 0) ordered.push_back(p);
  };
  for (const size_t p : options.order) take(p);
  for (size_t p = left.size(); p-- > 0;) take(p);
  return ordered;
}

void GradientBuckets::State::fill_buckets(const std::vector<char>& taken) {
  bucket_of.assign(parameters.size(), kNone);
  filled_by_backward.assign(parameters.size(), 0);
  const int64_t limit = options.bytes_per_bucket > 0 ? options.bytes_per_bucket : kBytesPerBucket;
  const int64_t least = options.bytes_of_first > 0 ? std::min(options.bytes_of_first, limit) : limit;
  const bool mixes_dtypes = !options.order.empty();
  const std::vector<size_t> ordered = order(taken);
  int64_t left = 0;
  for (const size_t p : ordered) left += static_cast<int64_t>(parameters[p].nbytes());
  int64_t bytes = 0;
  int64_t wanted = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  for (const size_t p : ordered) {
    if (buckets.empty() || bytes >= wanted || (!mixes_dtypes && parameters[p].scalar_type() != dtype)) {
      buckets.emplace_back();
      left -= bytes;
      wanted = buckets.size() == 1 ? least : std::clamp(left / 2, least, limit);
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
  Bucket& bucket = buckets[bucket_of[parameter]];
  if (is_on_device()) note_stream(bucket);
  --bucket.missing;
  send_full_buckets();
}

void GradientBuckets::State::send_full_buckets() {
  size_t full = next;
  while (full < buckets.size() && buckets[full].missing == 0) ++full;
  if (full > next) send(full);
}

/// LibTorch may write gradients of one pass on several streams.
void GradientBuckets::State::note_stream(Bucket& bucket) const {
  const c10::Device device = parameters[0].device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (std::find(bucket.streams.begin(), bucket.streams.end(), stream) == bucket.streams.end()) {
    bucket.streams.push_back(stream);
  }
}

void GradientBuckets::State::record(Bucket& bucket) const {
  for (size_t i = 0; i < bucket.streams.size(); ++i) {
    if (i == bucket.computed.size()) bucket.computed.emplace_back();
    bucket.computed[i].record(bucket.streams[i]);
  }
}

/// Makes the current stream wait for the others that have computed gradients of a bucket.
void GradientBuckets::State::follow_streams(Bucket& bucket) const {
  if (!is_on_device()) return;
  const c10::Device device = parameters[0].device();
  const c10::Stream here = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const auto is_here = [&](const c10::Stream& stream) { return stream == here; };
  if (std::all_of(bucket.streams.begin(), bucket.streams.end(), is_here)) return;
  record(bucket);
  for (size_t i = 0; i < bucket.streams.size(); ++i) {
    if (!is_here(bucket.streams[i])) bucket.computed[i].block(here);
  }
}

void GradientBuckets::State::send(size_t count) {
  const at::NoGradGuard no_grad;
  for (; next < count; ++next) {
    if (!is_on_device() && !only_queues()) continue;
    Bucket& bucket = buckets[next];
    if (only_queues()) {
      follow_streams(bucket);
      complete(bucket);
      options.prepare(bucket.parameters);
    }
    if (!is_on_device()) continue;
    note_stream(bucket);
    record(bucket);
  }
  const std::lock_guard lock(mutex);
  asked = count;
  changed.notify_all();
}

/// On the device of the gradients. Memory of the gradients is not marked as used by a stream of their own: it is freed,
/// and used again, in the order of the computing stream, which waits for this one in `finish`.
void GradientBuckets::State::serve_on_device() {
  if (parameters.empty() || !parameters[0].is_cuda()) return serve();
  const c10::Device device = parameters[0].device();
  const c10::impl::VirtualGuardImpl runtime(device.type());
  runtime.setDevice(device);
  if (only_queues()) runtime.exchangeStream(runtime.getStreamFromGlobalPool(device, /*isHighPriority=*/true));
  serve();
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
  if (only_queues()) return queue_now(bucket);
  if (!is_on_device()) {
    complete(bucket);
    return send_gradients(bucket.parameters);
  }
  const c10::Device device = parameters[0].device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  for (size_t i = 0; i < bucket.streams.size(); ++i) bucket.computed[i].block(stream);
  complete(bucket);
  send_gradients(bucket.parameters);
  stream.synchronize();
}

void GradientBuckets::State::queue_now(Bucket& bucket) {
  if (!is_on_device()) return send_gradients(bucket.parameters);
  const c10::Device device = parameters[0].device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  for (size_t i = 0; i < bucket.streams.size(); ++i) bucket.computed[i].block(stream);
  if (!queued) queued.emplace();
  try {
    send_gradients(bucket.parameters);
  } catch (...) {
    queued->record(stream);  // others may use the memory of gradients already
    throw;
  }
  queued->record(stream);
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
  lock.unlock();
  follow_queued();
  if (failure) std::rethrow_exception(failure);
}

/// The thread of the buckets has queued all that it was asked for, or has failed. A later pass must not wait for the
/// event: this one may have been captured into a graph.
void GradientBuckets::State::follow_queued() {
  const std::optional<StreamEvent> last = std::exchange(queued, std::nullopt);
  if (!last) return;
  const c10::Device device = parameters[0].device();
  last->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters, const std::vector<char>& taken,
                                 BucketOptions options, Send send)
    : state_(std::make_shared<State>(std::move(parameters), std::move(options), std::move(send))) {
  state_->fill_buckets(taken);
  const auto written = [state = state_.get()](size_t parameter, const std::vector<at::Tensor>& received) {
    state->gradient_is_ready(parameter, received);
  };
  state_->hooks = GradientHooks(state_->parameters, taken, state_, written);
  state_->thread = std::thread([state = state_.get()] { state->serve_on_device(); });
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
  for (auto& bucket : state_->buckets) {
    bucket.missing = bucket.parameters.size();
    bucket.streams.clear();
  }
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
  state_->queued.reset();
  state_->begun = true;
  state_->next_turn.reset();
  state_->has_turn = after == nullptr || after->num_buckets() == 0;
  lock.unlock();
  if (state_->has_turn) return;
  const std::lock_guard before(after->state_->mutex);
  after->state_->next_turn = state_;
}

void GradientBuckets::send_rest() {
  state_->begun = false;
  state_->send(state_->buckets.size());
}

void GradientBuckets::finish() {
  send_rest();
  state_->wait();
}

void GradientBuckets::abandon() {
  state_->begun = false;
  std::unique_lock lock(state_->mutex);
  if (!state_->has_turn) state_->asked = state_->done;
  state_->changed.wait(lock, [&] { return state_->failure || state_->done == state_->asked; });
  lock.unlock();
  state_->follow_queued();
}

std::unique_ptr<GradientBuckets> make_buckets(const std::vector<at::Tensor>& parameters,
                                              const std::vector<char>& present, GradientBuckets::Send send,
                                              int64_t bytes_per_bucket) {
  return make_buckets(parameters, present, std::move(send), BucketOptions{.bytes_per_bucket = bytes_per_bucket});
}

std::unique_ptr<GradientBuckets> make_buckets(const std::vector<at::Tensor>& parameters,
                                              const std::vector<char>& present, GradientBuckets::Send send,
                                              BucketOptions options) {
  std::vector<char> taken(present.size(), 0);
  for (size_t p = 0; p < present.size(); ++p) {
    taken[p] = present[p] == kDense && parameters[p].requires_grad() && parameters[p].is_leaf() ? 1 : 0;
  }
  return std::make_unique<GradientBuckets>(parameters, taken, std::move(options), std::move(send));
}

}  // namespace lockstep::detail
