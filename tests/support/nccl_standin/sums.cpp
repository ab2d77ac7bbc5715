#include "tests/support/nccl_standin/sums.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace nccl_standin {
namespace {

template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(a, b);
  } else {
    return a < b ? a : b;
  }
}

template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(a, b);
  } else {
    return a > b ? a : b;
  }
}

template <typename T>
T combined(T a, T b, ncclRedOp_t op) {
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

float widened(__half value) { return __half2float(value); }
float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
void narrowed(float value, __half& to) { to = __float2half(value); }
void narrowed(float value, __nv_bfloat16& to) { to = __float2bfloat16(value); }

template <typename T>
void fold(const std::vector<const char*>& inputs, char* output, size_t begin, size_t end, ncclRedOp_t op) {
  T* to = reinterpret_cast<T*>(output);
  const T* first = reinterpret_cast<const T*>(inputs[0]);
  for (size_t i = begin; i < end; ++i) to[i] = first[i];
  for (size_t r = 1; r < inputs.size(); ++r) {
    const T* next = reinterpret_cast<const T*>(inputs[r]);
    if constexpr (std::is_arithmetic_v<T>) {
      if (op == ncclSum) {
        for (size_t i = begin; i < end; ++i) to[i] = static_cast<T>(to[i] + next[i]);
      } else {
        for (size_t i = begin; i < end; ++i) to[i] = combined(to[i], next[i], op);
      }
    } else {
      for (size_t i = begin; i < end; ++i) narrowed(combined(widened(to[i]), widened(next[i]), op), to[i]);
    }
  }
}

}  // namespace

size_t size_of(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void combine(const std::vector<const char*>& inputs, char* output, size_t begin, size_t end, ncclDataType_t dtype,
             ncclRedOp_t op) {
  switch (dtype) {
    case ncclInt8:
      return fold<int8_t>(inputs, output, begin, end, op);
    case ncclUint8:
      return fold<uint8_t>(inputs, output, begin, end, op);
    case ncclInt32:
      return fold<int32_t>(inputs, output, begin, end, op);
    case ncclUint32:
      return fold<uint32_t>(inputs, output, begin, end, op);
    case ncclInt64:
      return fold<int64_t>(inputs, output, begin, end, op);
    case ncclUint64:
      return fold<uint64_t>(inputs, output, begin, end, op);
    case ncclFloat16:
      return fold<__half>(inputs, output, begin, end, op);
    case ncclBfloat16:
      return fold<__nv_bfloat16>(inputs, output, begin, end, op);
    case ncclFloat32:
      return fold<float>(inputs, output, begin, end, op);
    default:
      return fold<double>(inputs, output, begin, end, op);
  }
}

}  // namespace nccl_standin
