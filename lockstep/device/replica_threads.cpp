#include "lockstep/device/replica_threads.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/device/random.h"
#include "lockstep/device/stream.h"
#include "lockstep/device/thread_share.h"

/// LibTorch 2.4 gave autocast one pair of functions for all kinds of device, and deprecated the older ones. What stands
/// here is a worse match than those, so that it is called only where they do not exist.
namespace lockstep_before_libtorch_2_4 {
struct AnyKind {
  AnyKind(c10::DeviceType kind) : kind(kind) {}  // NOLINT: the conversion makes it the worse match
  c10::DeviceType kind;
};
[[maybe_unused]] at::ScalarType get_autocast_dtype(AnyKind device) {
  return device.kind == at::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}
[[maybe_unused]] void set_autocast_dtype(AnyKind device, at::ScalarType type) {
  device.kind == at::kCPU ? at::autocast::set_autocast_cpu_dtype(type) : at::autocast::set_autocast_gpu_dtype(type);
}
}  // namespace lockstep_before_libtorch_2_4

namespace lockstep {
namespace {

thread_local std::optional<ReplicaFailure> failure_of_last_run;

at::ScalarType autocast_type(c10::DeviceType kind) {
  using namespace lockstep_before_libtorch_2_4;
  using namespace at::autocast;
  return get_autocast_dtype(kind);
}

void set_autocast_type(c10::DeviceType kind, at::ScalarType type) {
  using namespace lockstep_before_libtorch_2_4;
  using namespace at::autocast;
  set_autocast_dtype(kind, type);
}

/// Runs the whole of a backward pass on the thread that started it, where LibTorch can: its own thread for each GPU
/// would serve all replicas on that card, and block for good in the first collective of a gradient.
template <class State>
void keep_backward_on_this_thread(State& state) {
  if constexpr (requires { state.set_multithreading_enabled(false); }) state.set_multithreading_enabled(false);
}

/// The caller's thread-local state that replicas take over; what LibTorch's own snapshot leaves out is added.
struct CallerState {
  at::ThreadLocalState local;
  at::ScalarType autocast_cpu = autocast_type(at::kCPU);
  at::ScalarType autocast_gpu = autocast_type(at::kCUDA);
};

/// Puts the caller's state onto a replica's thread for as long as it lives.
class CallerStateGuard {
 public:
  explicit CallerStateGuard(const CallerState& caller) : guard_(caller.local) {
    set_autocast_type(at::kCPU, caller.autocast_cpu);
    set_autocast_type(at::kCUDA, caller.autocast_gpu);
  }

 private:
  at::ThreadLocalStateGuard guard_;
};

class AutogradStateGuard {
 public:
  AutogradStateGuard() : before_(c10::AutogradState::get_tls_state()) {
    auto state = before_;
    keep_backward_on_this_thread(state);
    c10::AutogradState::set_tls_state(state);
  }
  ~AutogradStateGuard() { c10::AutogradState::set_tls_state(before_); }

 private:
  c10::AutogradState before_;
};

}  // namespace

const std::optional<ReplicaFailure>& last_replica_failure() { return failure_of_last_run; }

namespace detail {

struct ReplicaThreads::State {
  State(const std::vector<c10::Device>& devices, int first_replica, int num_workers, int local_workers)
      : devices(devices), first_replica(first_replica), several(devices.size() * num_workers > 1) {
    for (const c10::Device& device : devices) {
      streams.emplace_back(device);
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
    for (Backoff backoff(patience[replica].value); !ready();) {
      if (backoff.pause()) continue;
      std::unique_lock<std::mutex> lock(sleep_mutex);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      wake.wait(lock, ready);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
      return;
    }
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
    std::exception_ptr error;
    try {
      ReplicaStream::Scope stream(streams[replica]);
      ThreadShare threads(devices[replica].is_cpu() ? share : num_hardware_threads());
      std::optional<ReplicaRandom> random;
      std::optional<AutogradStateGuard> autograd;
      if (several) {
        random.emplace(seed, first_replica + replica);
        autograd.emplace();
      }
      (*body)(replica);
    } catch (...) {
      error = std::current_exception();
      const std::lock_guard<std::mutex> lock(failure_mutex);
      if (!failure) failure = ReplicaFailure{replica, error};
    }
    (*leave)(replica, error);
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

void ReplicaThreads::run(c10::function_ref<void(int)> body, c10::function_ref<void()> begin,
                         c10::function_ref<void(int, std::exception_ptr)> leave) {
  State& state = *state_;
  const std::lock_guard<std::mutex> turn(state.one_run_at_a_time);
  begin();
  state.body = &body;
  state.leave = &leave;
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
  state.wait_until(0, [&] { return state.running.load(std::memory_order_seq_cst) == 0; });
  if (state.any_stream) {
    for (ReplicaStream& stream : state.streams) stream.lead_caller();
  }
  state.rethrow_failure();
}

}  // namespace detail
}  // namespace lockstep
