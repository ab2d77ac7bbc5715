#include "tests/support/nccl_standin/sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace nccl_standin {
namespace {

constexpr int kThreads = 512;
constexpr size_t kMostBlocks = 1024;

template <typename T>
__host__ __device__ T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return fmin(a, b);
  } else {
    return a < b ? a : b;
  }
}

template <typename T>
__host__ __device__ T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return fmax(a, b);
  } else {
    return a > b ? a : b;
  }
}

template <typename T>
__host__ __device__ T combined(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMin:
      return smaller(a, b);
    case ncclMax:
      return larger(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

__host__ __device__ float widened(__half value) { return __half2float(value); }
__host__ __device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__host__ __device__ void narrowed(float value, __half& to) { to = __float2half(value); }
__host__ __device__ void narrowed(float value, __nv_bfloat16& to) { to = __float2bfloat16(value); }

/// Element i of all inputs.
template <typename T>
__host__ __device__ T fold(const char* const* inputs, int num_inputs, size_t i, ncclRedOp_t op) {
  T result = reinterpret_cast<const T*>(inputs[0])[i];
  for (int r = 1; r < num_inputs; ++r) {
    const T next = reinterpret_cast<const T*>(inputs[r])[i];
    if constexpr (std::is_arithmetic_v<T>) {
      result = combined(result, next, op);
    } else {
      narrowed(combined(widened(result), widened(next), op), result);
    }
  }
  return result;
}

template <typename T>
__global__ void fold_all(GpuSum sum, ncclRedOp_t op) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < sum.count; i += step) {
    const T result = fold<T>(sum.inputs, sum.num_inputs, i, op);
    for (int r = 0; r < sum.num_outputs; ++r) reinterpret_cast<T*>(sum.outputs[r])[i] = result;
  }
}

__global__ void hold(long long nanoseconds, const volatile int* released) {
  const auto now = [] {
    unsigned long long time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const unsigned long long begin = now();
  const auto limit = static_cast<unsigned long long>(nanoseconds);
  while (nanoseconds < 0 || now() - begin < limit) {
    if (*released != 0) return;
    __nanosleep(500);
  }
}

/// Calls `f` with a value of the C++ type.
template <typename F>
auto with_type(ncclDataType_t dtype, F f) {
  switch (dtype) {
    case ncclInt8:
      return f(int8_t());
    case ncclUint8:
      return f(uint8_t());
    case ncclInt32:
      return f(int32_t());
    case ncclUint32:
      return f(uint32_t());
    case ncclInt64:
      return f(int64_t());
    case ncclUint64:
      return f(uint64_t());
    case ncclFloat16:
      return f(__half());
    case ncclBfloat16:
      return f(__nv_bfloat16());
    case ncclFloat32:
      return f(float());
    default:
      return f(double());
  }
}

constexpr ncclDataType_t kTypes[] = {ncclInt8,    ncclUint8,   ncclInt32,    ncclUint32,  ncclInt64,
                                     ncclUint64,  ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64};

}  // namespace

size_t size_of(ncclDataType_t dtype) {
  return with_type(dtype, [](auto number) { return sizeof(number); });
}

void combine(const std::vector<const char*>& inputs, char* output, size_t begin, size_t end, ncclDataType_t dtype,
             ncclRedOp_t op) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    T* const to = reinterpret_cast<T*>(output);
    for (size_t i = begin; i < end; ++i) to[i] = fold<T>(inputs.data(), static_cast<int>(inputs.size()), i, op);
  });
}

cudaError_t combine_on_gpu(const GpuSum& sum, ncclDataType_t dtype, ncclRedOp_t op, cudaStream_t stream) {
  const size_t blocks = std::clamp<size_t>((sum.count + kThreads - 1) / kThreads, 1, kMostBlocks);
  with_type(dtype, [&](auto number) {
    fold_all<decltype(number)><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(sum, op);
  });
  return cudaGetLastError();
}

cudaError_t hold_on_gpu(long long nanoseconds, const volatile int* released, cudaStream_t stream) {
  hold<<<1, 1, 0, stream>>>(nanoseconds, released);
  return cudaGetLastError();
}

cudaError_t load_kernels(cudaStream_t stream) {
  cudaError_t code = hold_on_gpu(0, nullptr, stream);
  for (const ncclDataType_t dtype : kTypes) {
    if (code == cudaSuccess) code = combine_on_gpu({}, dtype, ncclSum, stream);
  }
  return code == cudaSuccess ? cudaStreamSynchronize(stream) : code;
}

}  // namespace nccl_standin
