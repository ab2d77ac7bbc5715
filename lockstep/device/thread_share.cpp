#include "lockstep/device/thread_share.h"

#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <exception>
#include <limits>
#include <malloc.h>
#include <mutex>
#include <sched.h>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/processor.h"
#include "lockstep/device/cpu_quota.h"

namespace lockstep {
namespace {

/// Opens LibTorch's own library, so that symbols are looked up in the libraries that LibTorch is linked to: a process
/// may have another OpenMP or BLAS library, too.
void* libtorch() {
  Dl_info where;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &where) == 0) return RTLD_DEFAULT;
  void* handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr ? handle : RTLD_DEFAULT;
}

/// Functions of libraries that LibTorch may be linked to; null where it is not.
struct ThreadControls {
  using SetThreads = void (*)(int);
  using GetThreads = int (*)();

  void* libtorch = lockstep::libtorch();
  SetThreads omp_set = find<SetThreads>("omp_set_num_threads");
  GetThreads omp_get = find<GetThreads>("omp_get_max_threads");
  GetThreads omp_thread = find<GetThreads>("omp_get_thread_num");
  /// What g++ compiles `#pragma omp parallel` to. Our own code is not compiled with OpenMP, which would link a second
  /// one.
  using Parallel = void (*)(void (*)(void*), void*, unsigned num_threads, unsigned flags);
  Parallel omp_parallel = find<Parallel>("GOMP_parallel");
  SetThreads openblas_set = find<SetThreads>("openblas_set_num_threads");
  GetThreads openblas_get = find<GetThreads>("openblas_get_num_threads");
  bool has_mkl = find<GetThreads>("mkl_get_max_threads") != nullptr || at::hasMKL();

  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(libtorch, name));
  }
};

const ThreadControls& controls() {
  static const ThreadControls found;
  return found;
}

std::atomic<int> blas_threads_in_force{0};
std::atomic<int> threads_asked_for{0};

}  // namespace

int num_hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  const int cores = known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return detail::threads_under_quota(std::max(1, cores), detail::cpu_quota());
}

void set_threads_per_replica(int num_threads) {
  LOCKSTEP_CHECK_VALUE(num_threads >= 0,
                       "[set_threads_per_replica] the number must be positive, or 0 for an equal share ",
                       "of the cores: num_threads=", num_threads);
  threads_asked_for = num_threads;
}

int threads_per_replica(int num_replicas, int num_processes) {
  if (threads_asked_for > 0) return threads_asked_for;
  return std::max(1, num_hardware_threads() / (std::max(1, num_replicas) * std::max(1, num_processes)));
}

/// Keeps freed memory in the process. Gradients and activations are allocated anew in every step; glibc gives blocks of
/// this size back to the kernel each time, which then clears the same pages again, one thread at a time.
static void keep_freed_memory() {
  constexpr int kLargestKept = 32 << 20;  // the most that glibc allows
  constexpr int kSpare = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, kSpare);
}

/// oneMKL chooses the kernel of a vector function at its first call in a process. Two threads that make it at once may
/// get one of low accuracy for that call (pytorch/pytorch#188792), so that the first step of replicas would differ from
/// run to run. Here one thread makes it, before there are replicas.
static void choose_vector_kernels() {
  if (!at::hasMKL()) return;
  const at::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({256}, 0.5, at::device(at::kCPU).dtype(dtype));
    x.sqrt(), x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan(), x.exp(), x.expm1(), x.log(), x.log10(), x.log2();
    x.log1p(), x.tanh(), x.sinh(), x.cosh(), x.erf(), x.erfc(), x.erfinv(), x.lgamma(), x.trunc(), x.pow(0.3);
  }
}

void apply_machine_defaults() {
  static const bool done = [] {
    if (env::flag("LOCKSTEP_KEEP_MEMORY")) keep_freed_memory();
    const auto asked = env::given("LOCKSTEP_ONEDNN");
    if (asked || detail::is_arm64()) at::globalContext().setUserEnabledMkldnn(asked && env::flag("LOCKSTEP_ONEDNN"));
    choose_vector_kernels();
    return true;
  }();
  static_cast<void>(done);
}

BlasLibrary blas_library() {
  if (controls().openblas_set != nullptr) return {"OpenBLAS", true};
  if (controls().has_mkl) return {"MKL", true};
  return {"unknown", false};
}

namespace detail {

ThreadShare::ThreadShare(int num_threads) {
  at::get_num_threads();  // LibTorch sets a new thread's number at its first use of it, and would undo ours later.
  before_ = controls().omp_get != nullptr ? controls().omp_get() : 0;
  if (before_ != 0 && before_ != num_threads) controls().omp_set(num_threads);
}

ThreadShare::~ThreadShare() {
  if (before_ != 0 && before_ != controls().omp_get()) controls().omp_set(before_);
}

namespace {

/// One running `for_each_in_parallel`.
struct ParallelWork {
  int64_t count;
  c10::function_ref<void(int64_t, int)>* work;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;

  void take_turns(int thread) {
    try {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*work)(i, thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  }
};

}  // namespace

int max_parallel_threads() { return controls().omp_parallel != nullptr ? at::get_num_threads() : 1; }

void for_each_in_parallel(int64_t count, c10::function_ref<void(int64_t, int)> work) {
  const auto num_threads = static_cast<int>(std::min<int64_t>(count, max_parallel_threads()));
  if (num_threads <= 1) {
    for (int64_t i = 0; i < count; ++i) work(i, 0);
    return;
  }
  ParallelWork parallel{count, &work, {}, {}, nullptr};
  // This store and the load below order memory accesses with the threads. OpenMP orders them, too, but ThreadSanitizer
  // does not see it.
  parallel.next.store(0);
  controls().omp_parallel([](void* data) { static_cast<ParallelWork*>(data)->take_turns(controls().omp_thread()); },
                          &parallel, static_cast<unsigned>(num_threads), 0);
  parallel.next.load();
  if (parallel.error) std::rethrow_exception(parallel.error);
}

int blas_threads() {
  const int in_force = blas_threads_in_force.load(std::memory_order_relaxed);
  if (in_force != 0) return in_force;
  return controls().openblas_get != nullptr ? controls().openblas_get() : num_hardware_threads();
}

void set_blas_threads(int num_threads) {
  if (controls().openblas_set == nullptr) return;
  if (blas_threads_in_force.exchange(num_threads, std::memory_order_relaxed) == num_threads) return;
  controls().openblas_set(num_threads);
}

}  // namespace detail
}  // namespace lockstep
