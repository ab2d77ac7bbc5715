#include "lockstep/comm/reduce/reduce_kernel.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/narrow_float.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kBlockBytes = 2048;

/// A rule combines two values, and finishes the last one with the number of ranks.
struct Sum {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
  template <typename A>
  static A finish(A a, A /*size*/) {
    return a;
  }
};

struct Mean : Sum {
  template <typename A>
  static A finish(A a, A size) {
    return a / size;
  }
};

/// The mean over a power of two: the product with the reciprocal has the same bits as the quotient.
struct MeanOfPowerOfTwo : Sum {
  template <typename A>
  static A finish(A a, A size) {
    return a * (A(1) / size);
  }
};

struct Min {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) return b < a ? b : a;
    const A least = a < b ? a : b;
    return a != a ? a : least;
  }
  template <typename A>
  static A finish(A a, A /*size*/) {
    return a;
  }
};

struct Max {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) return a < b ? b : a;
    const A most = a > b ? a : b;
    return a != a ? a : most;
  }
  template <typename A>
  static A finish(A a, A /*size*/) {
    return a;
  }
};

struct Product {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      // In 64 bits without sign, in which overflow is defined; the low bits are those of the narrow product.
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
  template <typename A>
  static A finish(A a, A /*size*/) {
    return a;
  }
};

template <typename Number, typename Rule>
struct Kernel {
  using T = typename Number::Stored;
  using A = typename Number::Computed;

  static A tree(A a, A b) { return Rule::combine(a, b); }
  static A tree(A a, A b, A c) { return Rule::combine(tree(a, b), c); }
  static A tree(A a, A b, A c, A d) { return Rule::combine(tree(a, b), tree(c, d)); }

  // Two to four ranks: all in registers. Each index is read before it is written and belongs to no other, so the loop
  // has no dependences although outputs may be inputs.
  static void two_to_two(const T* a, const T* b, T* p, T* q, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const T value = Number::store(Rule::finish(tree(Number::load(a[i]), Number::load(b[i])), A(2)));
      p[i] = value;
      q[i] = value;
    }
  }

  static void two_to_one(const T* a, const T* b, T* p, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      p[i] = Number::store(Rule::finish(tree(Number::load(a[i]), Number::load(b[i])), A(2)));
    }
  }

  static void three_to_three(const T* a, const T* b, const T* c, T* p, T* q, T* r, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const T value =
          Number::store(Rule::finish(tree(Number::load(a[i]), Number::load(b[i]), Number::load(c[i])), A(3)));
      p[i] = value;
      q[i] = value;
      r[i] = value;
    }
  }

  static void four_to_four(const T* const* in, T* const* out, int64_t count) {
    const T *a = in[0], *b = in[1], *c = in[2], *d = in[3];
    T *p = out[0], *q = out[1], *r = out[2], *s = out[3];
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const T value = Number::store(
          Rule::finish(tree(Number::load(a[i]), Number::load(b[i]), Number::load(c[i]), Number::load(d[i])), A(4)));
      p[i] = value;
      q[i] = value;
      r[i] = value;
      s[i] = value;
    }
  }

  static void pair(const T* a, const T* b, A* p, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) p[i] = tree(Number::load(a[i]), Number::load(b[i]));
  }

  static void widen(const T* a, A* p, int64_t count) {
    for (int64_t i = 0; i < count; ++i) p[i] = Number::load(a[i]);
  }

  static void take_in(A* a, const A* b, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) a[i] = Rule::combine(a[i], b[i]);
  }

  static void write(const A* a, T* p, A size, int64_t count) {
    for (int64_t i = 0; i < count; ++i) p[i] = Number::store(Rule::finish(a[i], size));
  }

  /// Any number of ranks: the tree over one block at a time, in scratch memory that stays in the first cache.
  static void any(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count) {
    constexpr int64_t kBlock = kBlockBytes / static_cast<int64_t>(sizeof(A));
    const size_t pairs = (inputs.size() + 1) / 2;
    thread_local std::vector<A> scratch;
    scratch.resize(pairs * kBlock);
    for (int64_t at = 0; at < count; at += kBlock) {
      const int64_t length = std::min(kBlock, count - at);
      for (size_t p = 0; p < pairs; ++p) {
        A* const to = scratch.data() + p * kBlock;
        const T* const a = static_cast<const T*>(inputs[2 * p]) + at;
        if (2 * p + 1 < inputs.size()) {
          pair(a, static_cast<const T*>(inputs[2 * p + 1]) + at, to, length);
        } else {
          widen(a, to, length);
        }
      }
      for (size_t stride = 1; stride < pairs; stride *= 2) {
        for (size_t p = 0; p + stride < pairs; p += 2 * stride) {
          take_in(scratch.data() + p * kBlock, scratch.data() + (p + stride) * kBlock, length);
        }
      }
      if (outputs.empty()) continue;
      T* const first = static_cast<T*>(outputs[0]) + at;
      write(scratch.data(), first, static_cast<A>(inputs.size()), length);
      for (void* output : outputs.subspan(1)) {
        std::memcpy(static_cast<T*>(output) + at, first, static_cast<size_t>(length) * sizeof(T));
      }
    }
  }

  static void run(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count) {
    const T* in[4];
    T* out[4];
    const size_t num_inputs = inputs.size();
    const size_t num_outputs = outputs.size();
    if (num_inputs < 2 || num_inputs > 4 || (num_outputs != num_inputs && num_inputs + num_outputs != 3)) {
      any(inputs, outputs, count);
      return;
    }
    for (size_t i = 0; i < num_inputs; ++i) in[i] = static_cast<const T*>(inputs[i]);
    for (size_t i = 0; i < num_outputs; ++i) out[i] = static_cast<T*>(outputs[i]);
    if (num_outputs == 1) {
      two_to_one(in[0], in[1], out[0], count);
    } else if (num_inputs == 2) {
      two_to_two(in[0], in[1], out[0], out[1], count);
    } else if (num_inputs == 3) {
      three_to_three(in[0], in[1], in[2], out[0], out[1], out[2], count);
    } else {
      four_to_four(in, out, count);
    }
  }
};

/// Sums and means treat a complex number as a pair of real ones.
template <typename Number, typename Rule>
void run_pairs(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count) {
  Kernel<Number, Rule>::run(inputs, outputs, 2 * count);
}

template <typename Rule>
ReduceKernel real_kernel(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return Kernel<Half, Rule>::run;
    case at::kBFloat16:
      return Kernel<BFloat16, Rule>::run;
    case at::kFloat:
      return Kernel<Plain<float>, Rule>::run;
    case at::kDouble:
      return Kernel<Plain<double>, Rule>::run;
    default:
      return nullptr;
  }
}

template <typename Rule>
ReduceKernel integer_kernel(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return Kernel<Plain<uint8_t>, Rule>::run;
    case at::kChar:
      return Kernel<Plain<int8_t>, Rule>::run;
    case at::kShort:
      return Kernel<Plain<int16_t>, Rule>::run;
    case at::kInt:
      return Kernel<Plain<int32_t>, Rule>::run;
    case at::kLong:
      return Kernel<Plain<int64_t>, Rule>::run;
    default:
      return real_kernel<Rule>(dtype);
  }
}

template <typename Rule>
ReduceKernel complex_kernel(at::ScalarType dtype) {
  if (dtype == at::kComplexHalf) return run_pairs<Half, Rule>;
  if (dtype == at::kComplexFloat) return run_pairs<Plain<float>, Rule>;
  if (dtype == at::kComplexDouble) return run_pairs<Plain<double>, Rule>;
  return nullptr;
}

/// A product mixes the parts of complex numbers.
ReduceKernel complex_product(at::ScalarType dtype) {
  if (dtype == at::kComplexFloat) return Kernel<Plain<std::complex<float>>, Product>::run;
  if (dtype == at::kComplexDouble) return Kernel<Plain<std::complex<double>>, Product>::run;
  return nullptr;
}

/// Booleans are bytes of 0 and 1: their sum, a logical or, is the maximum, and their product the minimum.
ReduceKernel bool_kernel(ReduceOp op) {
  if (op == ReduceOp::Sum || op == ReduceOp::Max) return integer_kernel<Max>(at::kByte);
  return op == ReduceOp::Mean ? nullptr : integer_kernel<Min>(at::kByte);
}

ReduceKernel find_kernel(at::ScalarType dtype, ReduceOp op, bool power_of_two) {
  const bool is_complex = c10::isComplexType(dtype);
  if (dtype == at::kBool) return bool_kernel(op);
  switch (op) {
    case ReduceOp::Sum:
      return is_complex ? complex_kernel<Sum>(dtype) : integer_kernel<Sum>(dtype);
    case ReduceOp::Mean:
      if (power_of_two) {
        return is_complex ? complex_kernel<MeanOfPowerOfTwo>(dtype) : real_kernel<MeanOfPowerOfTwo>(dtype);
      }
      return is_complex ? complex_kernel<Mean>(dtype) : real_kernel<Mean>(dtype);
    case ReduceOp::Min:
      return integer_kernel<Min>(dtype);
    case ReduceOp::Max:
      return integer_kernel<Max>(dtype);
    case ReduceOp::Product:
      return is_complex ? complex_product(dtype) : integer_kernel<Product>(dtype);
  }
  return nullptr;
}

}  // namespace

ReduceKernel reduce_kernel(at::ScalarType dtype, ReduceOp op, size_t size) {
  const auto kernel = find_kernel(dtype, op, std::has_single_bit(size));
  LOCKSTEP_CHECK_TYPE(kernel != nullptr, "[reduce] this reduction does not exist: op=", op,
                      ", dtype=", dtype_name(dtype));
  return kernel;
}

}  // namespace lockstep::comm
