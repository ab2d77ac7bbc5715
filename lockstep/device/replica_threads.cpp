#include "lockstep/device/replica_threads.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/device/autocast_dtype.h"
#include "lockstep/device/random.h"
#include "lockstep/device/stream.h"
#include "lockstep/device/thread_share.h"

namespace lockstep {
namespace {

thread_local std::optional<ReplicaFailure> failure_of_last_run;

/// Runs the whole backward pass on the thread that started it, where LibTorch supports it. LibTorch's own thread for a
/// GPU would serve all replicas on that GPU, and deadlock in the first collective of a gradient. For one replica it is
/// faster: the pass is not handed to another thread and back.
template <class State>
void keep_backward_on_this_thread(State& state) {
  if constexpr (requires { state.set_multithreading_enabled(false); }) state.set_multithreading_enabled(false);
}

/// The caller's thread-local state that replicas inherit, with the autocast dtypes, which LibTorch's snapshot lacks.
struct CallerState {
  at::ThreadLocalState local;
  at::ScalarType autocast_cpu = detail::autocast_dtype(at::kCPU);
  at::ScalarType autocast_gpu = detail::autocast_dtype(at::kCUDA);
};

/// Sets the caller's state on a replica's thread during its lifetime.
class CallerStateGuard {
 public:
  explicit CallerStateGuard(const CallerState& caller) : guard_(caller.local) {
    detail::set_autocast_dtype(at::kCPU, caller.autocast_cpu);
    detail::set_autocast_dtype(at::kCUDA, caller.autocast_gpu);
  }

 private:
  at::ThreadLocalStateGuard guard_;
};

bool is_collective_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Autocast stores casts of weights for the calling thread until it is left. A run around which it is on would leave
/// them to the next run, in which weights have changed.
class AutocastCacheGuard {
 public:
  AutocastCacheGuard() : is_on_(detail::is_autocast_on(at::kCPU) || detail::is_autocast_on(at::kCUDA)) {}
  ~AutocastCacheGuard() {
    if (is_on_) at::autocast::clear_cache();
  }
  AutocastCacheGuard(const AutocastCacheGuard&) = delete;
  AutocastCacheGuard& operator=(const AutocastCacheGuard&) = delete;

 private:
  bool is_on_;
};

/// Restores the modes of the calling thread: gradients, inference and autocast, as its function may have set them.
class ModesGuard {
 public:
  explicit ModesGuard(bool keeps_backward)
      : autograd_(c10::AutogradState::get_tls_state()), keys_(c10::impl::tls_local_dispatch_key_set()) {
    if (!keeps_backward) return;
    auto state = autograd_;
    keep_backward_on_this_thread(state);
    c10::AutogradState::set_tls_state(state);
  }
  ~ModesGuard() {
    c10::AutogradState::set_tls_state(autograd_);
    c10::impl::_force_tls_local_dispatch_key_set(keys_);
  }
  ModesGuard(const ModesGuard&) = delete;
  ModesGuard& operator=(const ModesGuard&) = delete;

 private:
  const c10::AutogradState autograd_;
  const c10::impl::LocalDispatchKeySet keys_;
};

}  // namespace

const std::optional<ReplicaFailure>& last_replica_failure() { return failure_of_last_run; }

namespace detail {

struct ReplicaThreads::State {
  State(const std::vector<c10::Device>& devices, int first_replica, int num_workers, int local_workers)
      : devices(devices), first_replica(first_replica), several(devices.size() * num_workers > 1) {
    for (const c10::Device& device : devices) {
      streams.emplace_back(device, devices.size() == 1);
      num_cpu_replicas += device.is_cpu() ? 1 : 0;
      any_stream = any_stream || !device.is_cpu();
    }
    share = lockstep::threads_per_replica(num_cpu_replicas, local_workers);
    patience.resize(devices.size());
  }

  std::vector<c10::Device> devices;
  int first_replica = 0;
  /// Whether there are others, here or in other processes.
  bool several = false;
  std::vector<ReplicaStream> streams;
  std::vector<std::thread> threads;
  int num_cpu_replicas = 0;
  int share = 1;
  bool any_stream = false;
  RunSeed seed;
  /// Those that replicas use on their GPUs in place of their own; may be empty.
  std::vector<at::Generator> generators;

  /// How long each replica's thread spins when it waits; its own cache line.
  struct alignas(128) OwnPatience {
    Patience value;
  };
  std::vector<OwnPatience> patience;

  std::mutex one_run_at_a_time;

  // The job: written by the caller before `generation` rises, read by the replicas after.
  c10::function_ref<void(int)>* body = nullptr;
  c10::function_ref<void(int, std::exception_ptr)>* leave = nullptr;
  const CallerState* caller = nullptr;

  alignas(128) std::atomic<uint64_t> generation{0};
  std::atomic<bool> stopping{false};
  alignas(128) std::atomic<int> running{0};
  std::atomic<int> sleepers{0};
  std::mutex sleep_mutex;
  std::condition_variable wake;

  std::mutex failure_mutex;
  std::optional<ReplicaFailure> failure;

  template <class Ready>
  void wait_until(int replica, Ready&& ready) {
    spin_then_sleep(patience[replica].value, ready, [&] {
      std::unique_lock<std::mutex> lock(sleep_mutex);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      wake.wait(lock, ready);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
      return true;
    });
  }

  void wake_sleepers() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    { const std::lock_guard<std::mutex> lock(sleep_mutex); }
    wake.notify_all();
  }

  void serve(int replica) {
    c10::setThreadName("replica_" + std::to_string(replica));
    for (uint64_t seen = 0;;) {
      wait_until(replica, [&] { return generation.load(std::memory_order_seq_cst) != seen || stopping.load(); });
      if (stopping.load()) return;
      ++seen;
      {
        CallerStateGuard guard(*caller);
        execute(replica);
      }
      if (running.fetch_sub(1, std::memory_order_seq_cst) == 1) wake_sleepers();
    }
  }

  void execute(int replica) {
    const trace::ReplicaScope traced(replica, first_replica + replica);
    std::exception_ptr error;
    try {
      ReplicaStream::Scope stream(streams[replica]);
      const AutocastCacheGuard autocast;
      ThreadShare threads(devices[replica].is_cpu() ? share : num_hardware_threads());
      const ModesGuard modes(/*keeps_backward=*/several || devices[replica].is_cuda());
      std::optional<ReplicaRandom> random;
      if (several) {
        random.emplace(seed, first_replica + replica, generators.empty() ? at::Generator() : generators[replica]);
      }
      (*body)(replica);
    } catch (...) {
      error = std::current_exception();
      keep_failure({replica, error});
    }
    (*leave)(replica, error);
  }

  /// Keeps the first failure. A CollectiveError gives way to another kind of error: it may be the consequence of it.
  void keep_failure(ReplicaFailure failed) {
    const std::lock_guard<std::mutex> lock(failure_mutex);
    if (!failure || (is_collective_error(failure->exception) && !is_collective_error(failed.exception))) {
      failure = std::move(failed);
    }
  }

  void rethrow_failure() {
    failure_of_last_run = std::exchange(failure, std::nullopt);
    if (!failure_of_last_run) return;
    const ReplicaFailure& failed = *failure_of_last_run;
    try {
      std::rethrow_exception(failed.exception);
    } catch (c10::Error& error) {
      if (devices.size() > 1) {
        error.add_context(
            c10::str("in replica ", failed.replica, " of ", devices.size(), " (", devices[failed.replica], ")"));
      }
      throw;
    }
  }
};

ReplicaThreads::ReplicaThreads(const std::vector<c10::Device>& devices, int first_replica, int num_workers,
                               int local_workers)
    : state_(std::make_unique<State>(devices, first_replica, num_workers, local_workers)) {
  LOCKSTEP_ASSERT(!devices.empty());
  trace::note_replicas(size());
  if (state_->several) install_replica_random();
  for (int replica = 1; replica < size(); ++replica) {
    state_->threads.emplace_back([state = state_.get(), replica] { state->serve(replica); });
  }
}

ReplicaThreads::~ReplicaThreads() {
  state_->stopping.store(true);
  { const std::lock_guard<std::mutex> lock(state_->sleep_mutex); }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ReplicaThreads::size() const { return static_cast<int>(state_->devices.size()); }

int ReplicaThreads::threads_per_replica() const { return state_->share; }

void ReplicaThreads::use_generators(std::vector<at::Generator> generators) {
  state_->generators = std::move(generators);
}

void ReplicaThreads::run(c10::function_ref<void(int)> body, c10::function_ref<void()> begin,
                         c10::function_ref<void(int, std::exception_ptr)> leave) {
  State& state = *state_;
  const std::lock_guard<std::mutex> turn(state.one_run_at_a_time);
  begin();
  trace::align_steps(size());
  state.body = &body;
  state.leave = &leave;
  state.failure.reset();
  state.seed.reset();
  if (state.num_cpu_replicas > 0) set_blas_threads(state.share);
  if (state.any_stream) {
    for (ReplicaStream& stream : state.streams) stream.follow_caller();
  }
  std::optional<CallerState> caller;
  if (size() > 1) {
    caller.emplace();
    state.caller = &*caller;
    state.running.store(size() - 1, std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_seq_cst);
    state.wake_sleepers();
  }
  state.execute(0);
  {
    const trace::EndOfRunScope traced(size());
    state.wait_until(0, [&] { return state.running.load(std::memory_order_seq_cst) == 0; });
  }
  if (state.any_stream) {
    try {
      for (ReplicaStream& stream : state.streams) stream.lead_caller();
    } catch (const c10::Error&) {
      if (!state.failure) throw;  // an error of the device follows the one that a replica has thrown
    }
  }
  state.rethrow_failure();
}

}  // namespace detail
}  // namespace lockstep
