#include "lockstep/comm/reduce/cuda/kernel_source.h"

#include <bit>
#include <optional>
#include <sstream>

namespace lockstep::comm {
namespace {

/// How elements are stored and in which type they are combined.
struct Element {
  const char* stored;
  const char* computed;
  /// Of integers: the type in which they are added and multiplied, so that overflow is defined.
  const char* wrapping = nullptr;
};

std::optional<Element> element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return Element{"float", "float"};
    case at::kDouble:
      return Element{"double", "double"};
    case at::kHalf:
    case at::kBFloat16:
      return Element{"unsigned short", "float"};
    case at::kByte:
    case at::kBool:
      return Element{"unsigned char", "unsigned char", "unsigned int"};
    case at::kChar:
      return Element{"signed char", "signed char", "unsigned int"};
    case at::kShort:
      return Element{"short", "short", "unsigned int"};
    case at::kInt:
      return Element{"int", "int", "unsigned int"};
    case at::kLong:
      return Element{"long long", "long long", "unsigned long long"};
    default:
      return std::nullopt;
  }
}

const char* load_body(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "return __uint_as_float((unsigned int)x << 16);";
  if (dtype == at::kHalf) return R"(float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;)";
  return "return x;";
}

/// Rounds to the nearest, ties to even; NaN becomes the one of the kernels for the CPU.
const char* store_body(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) {
    return "unsigned int w = __float_as_uint(x);"
           "return (stored)(x != x ? 0x7FC0u : (w + 0x7FFFu + ((w >> 16) & 1u)) >> 16);";
  }
  if (dtype == at::kHalf) {
    return R"(unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));)"
           "return x != x ? (stored)(0x7E00u | ((__float_as_uint(x) >> 16) & 0x8000u)) : y;";
  }
  return "return x;";
}

/// Booleans are bytes of 0 and 1: their sum, a logical or, is the maximum, and their product the minimum.
ReduceOp op_on_bytes(at::ScalarType dtype, ReduceOp op) {
  if (dtype != at::kBool) return op;
  return op == ReduceOp::Sum || op == ReduceOp::Max ? ReduceOp::Max : ReduceOp::Min;
}

std::string combine_body(at::ScalarType dtype, const Element& element, ReduceOp op) {
  const bool is_integer = element.wrapping != nullptr;
  const bool is_double = dtype == at::kDouble;
  if (op == ReduceOp::Min || op == ReduceOp::Max) {
    const std::string order = op == ReduceOp::Min ? "<" : ">";
    return "return " + std::string(is_integer ? "" : "a != a ? a : ") + "(a " + order + " b ? a : b);";
  }
  const bool adds = op != ReduceOp::Product;
  if (is_integer) {
    const std::string wrapping = element.wrapping;
    return "return (computed)((" + wrapping + ")a " + (adds ? "+" : "*") + " (" + wrapping + ")b);";
  }
  return std::string("return ") + (is_double ? "__d" : "__f") + (adds ? "add" : "mul") + "_rn(a, b);";
}

/// The product with the reciprocal of a power of two has the bits of the quotient.
std::string finish_body(at::ScalarType dtype, ReduceOp op, size_t num_ranks) {
  if (op != ReduceOp::Mean) return "return a;";
  const std::string prefix = dtype == at::kDouble ? "__d" : "__f";
  const std::string size = "(computed)" + std::to_string(num_ranks);
  if (std::has_single_bit(num_ranks)) return "return " + prefix + "mul_rn(a, (computed)1 / " + size + ");";
  return "return " + prefix + "div_rn(a, " + size + ");";
}

/// The tree of reduce_kernel.h, written out: `a[0] = combine(a[0], a[1]); ...`.
std::string tree(size_t num_ranks) {
  std::ostringstream out;
  for (size_t stride = 1; stride < num_ranks; stride *= 2) {
    for (size_t i = 0; i + stride < num_ranks; i += 2 * stride) {
      out << "a[" << i << "] = combine(a[" << i << "], a[" << i + stride << "]); ";
    }
  }
  return out.str();
}

constexpr const char* kBody = R"(
typedef unsigned long long word;

struct alignas(16) Vector { stored of[kPerVector]; };
struct Arguments { word words[kWords]; };

__device__ __forceinline__ void reduce_vectors(const stored* const* in, const word* out, word num_outputs,
                                               long long begin, long long count) {
  for (long long v = threadIdx.x; v < count; v += (long long)kThreads * kUnrolled) {
    Vector x[kUnrolled][kRanks];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      if (v + u * kThreads >= count) continue;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        x[u][r] = reinterpret_cast<const Vector*>(in[r] + begin)[v + u * kThreads];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      if (v + u * kThreads >= count) continue;
      Vector y;
#pragma unroll
      for (int e = 0; e < kPerVector; ++e) {
        computed a[kRanks];
#pragma unroll
        for (int r = 0; r < kRanks; ++r) a[r] = load(x[u][r].of[e]);
        y.of[e] = store(finish(combine_all(a)));
      }
      for (word o = 0; o < num_outputs; ++o) {
        reinterpret_cast<Vector*>(reinterpret_cast<stored*>(out[o]) + begin)[v + u * kThreads] = y;
      }
    }
  }
}

__device__ __forceinline__ void reduce_elements(const stored* const* in, const word* out, word num_outputs,
                                                long long begin, long long end) {
  for (long long i = begin + threadIdx.x; i < end; i += kThreads) {
    computed a[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) a[r] = load(in[r][i]);
    const stored y = store(finish(combine_all(a)));
    for (word o = 0; o < num_outputs; ++o) reinterpret_cast<stored*>(out[o])[i] = y;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) lockstep_reduce(const __grid_constant__ Arguments arguments) {
  const word* const words = arguments.words;
  const word num_outputs = words[1];
  const int stride = kPieceWords + kRanks + (int)num_outputs;
  int piece = 0;
  for (int last = (int)words[0]; last - piece > 1;) {
    const int middle = (piece + last) / 2;
    const word first = words[kHeaderWords + middle * stride + 1] >> 1;
    if (first <= blockIdx.x) piece = middle; else last = middle;
  }
  const word* const of_piece = words + kHeaderWords + piece * stride;
  const long long count = (long long)of_piece[0];
  const long long per_block = (long long)words[2];
  const long long begin = (long long)(blockIdx.x - (of_piece[1] >> 1)) * per_block;
  const long long end = begin + per_block < count ? begin + per_block : count;
  const stored* in[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) in[r] = reinterpret_cast<const stored*>(of_piece[kPieceWords + r]);
  const word* const out = of_piece + kPieceWords + kRanks;
  long long done = begin;
  if (of_piece[1] & 1) {
    const long long vectors = (end - begin) / kPerVector;
    reduce_vectors(in, out, num_outputs, begin, vectors);
    done += vectors * kPerVector;
  }
  reduce_elements(in, out, num_outputs, done, end);
}
)";

}  // namespace

bool has_kernel_source(at::ScalarType dtype, ReduceOp op, size_t num_ranks) {
  const auto element = element_of(dtype);
  if (!element || num_ranks < 2 || num_ranks > kMostRanks) return false;
  return op != ReduceOp::Mean || element->wrapping == nullptr;
}

std::string kernel_source(at::ScalarType dtype, ReduceOp op, size_t num_ranks) {
  const Element element = *element_of(dtype);
  const ReduceOp on_bytes = op_on_bytes(dtype, op);
  const size_t unrolled = num_ranks < 3 ? 4 : num_ranks < 5 ? 2 : 1;
  std::ostringstream out;
  out << "typedef " << element.stored << " stored;\n"
      << "typedef " << element.computed << " computed;\n"
      << "constexpr int kRanks = " << num_ranks << ";\n"
      << "constexpr int kWords = " << kArgumentWords << ";\n"
      << "constexpr int kHeaderWords = " << kHeaderWords << ";\n"
      << "constexpr int kPieceWords = " << kPieceWords << ";\n"
      << "constexpr int kThreads = " << kThreadsPerBlock << ";\n"
      << "constexpr int kUnrolled = " << unrolled << ";\n"
      << "constexpr int kPerVector = " << kVectorBytes << " / sizeof(stored);\n"
      << "__device__ __forceinline__ computed load(stored x) { " << load_body(dtype) << " }\n"
      << "__device__ __forceinline__ stored store(computed x) { " << store_body(dtype) << " }\n"
      << "__device__ __forceinline__ computed combine(computed a, computed b) { "
      << combine_body(dtype, element, on_bytes) << " }\n"
      << "__device__ __forceinline__ computed finish(computed a) { " << finish_body(dtype, op, num_ranks) << " }\n"
      << "__device__ __forceinline__ computed combine_all(computed (&a)[kRanks]) { " << tree(num_ranks)
      << "return a[0]; }\n"
      << kBody;
  return out.str();
}

}  // namespace lockstep::comm
