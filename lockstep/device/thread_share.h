#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"

/// How the processor's cores are divided among replicas that compute on it.
namespace lockstep {

/// Number of hardware threads that this process may use: the cores in its affinity mask, or less where a control group
/// limits its processor time (`docker run --cpus=2`).
LOCKSTEP_API int num_hardware_threads();

/// Sets how many threads each replica may use for one operation on the CPU; 0, the default, gives each an equal share
/// of the cores. Strategies that are made later follow it.
LOCKSTEP_API void set_threads_per_replica(int num_threads);
/// Returns that number for a strategy with `num_replicas` replicas on the CPU in each of `num_processes` processes that
/// share their cores.
LOCKSTEP_API int threads_per_replica(int num_replicas, int num_processes = 1);

/// Switches oneDNN off on Arm, where its convolutions are slower than those without it (LOCKSTEP_ONEDNN=1 or 0
/// overrides it), and makes malloc keep freed memory (LOCKSTEP_KEEP_MEMORY=0: return it to the system, glibc's
/// default). The first strategy calls it, once per process.
LOCKSTEP_API void apply_machine_defaults();

/// The BLAS library in the process.
struct BlasLibrary {
  /// "OpenBLAS", "MKL" or "unknown".
  std::string name;
  /// Whether the number of its threads follows `ThreadShare`.
  bool controlled = false;
};
LOCKSTEP_API BlasLibrary blas_library();

namespace detail {

/// Gives the calling thread `num_threads` threads for parallel loops (OpenMP) during its lifetime.
///
/// LibTorch's own setter is process-wide; OpenMP's is for the calling thread alone, which is what replicas need.
class LOCKSTEP_API ThreadShare {
 public:
  explicit ThreadShare(int num_threads);
  ~ThreadShare();
  ThreadShare(const ThreadShare&) = delete;
  ThreadShare& operator=(const ThreadShare&) = delete;

 private:
  int before_ = 0;
};

/// Calls `work(index, thread)` for every index below `count`, on as many threads as the calling one may use (`thread`
/// counts them from 0), through the OpenMP library that LibTorch itself uses: the process gets no second pool of
/// threads. Operations of LibTorch inside `work` use one thread. The first exception is rethrown when all have ended.
LOCKSTEP_API void for_each_in_parallel(int64_t count, c10::function_ref<void(int64_t index, int thread)> work);
/// Upper limit of `thread` in `for_each_in_parallel`.
LOCKSTEP_API int max_parallel_threads();

/// Makes the BLAS library use `num_threads` threads for one call. Process-wide in OpenBLAS, whose threads are one pool
/// that all callers share. Does nothing when that number is already set.
LOCKSTEP_API void set_blas_threads(int num_threads);
LOCKSTEP_API int blas_threads();

}  // namespace detail
}  // namespace lockstep
