#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"
#include "lockstep/xla/graph/layout.h"

/// The graph that tracing makes: values at the level of StableHLO. Builders, which also infer shapes, are in build.h.
namespace lockstep::xla {

using Dtype = at::ScalarType;
using Shape = c10::SmallVector<int64_t, 6>;

enum class Op : uint8_t {
  Argument,
  Number,
  Iota,
  Unary,
  Binary,
  Compare,
  Select,
  Convert,
  Broadcast,
  Reshape,
  Transpose,
  Slice,
  Pad,
  Concatenate,
  UpdateSlice,
  Reverse,
  Reduce,
  Dot,
  Convolution,
  ReduceWindow,
  WindowMaxIndex,
  SelectAndScatter,
  Take,
  Scatter,
  Sort,
  RandomBits,
  AllReduce,
  AllGather,
  Annotation,
};

/// What an argument stands for: memory on the devices, or data that wait to be sent. The rest is tensor/'s business.
struct LOCKSTEP_API ArgumentData {
  virtual ~ArgumentData() = default;
  LayoutPtr layout = nullptr;
};

/// One value: an operation on other values. Immutable, but that a result becomes an argument once it is computed.
struct LOCKSTEP_API Node : c10::intrusive_ptr_target {
  Op op = Op::Argument;
  Dtype dtype = at::kFloat;
  Shape shape;
  /// Which unary, binary, comparison, reduction...: a literal in StableHLO's spelling, compared by address.
  const char* kind = "";
  c10::SmallVector<c10::intrusive_ptr<Node>, 3> operands;
  /// What else determines the operation, in an order that is the builder's and the emitter's business.
  c10::SmallVector<int64_t, 8> attributes;

  /// Number: its value, by dtype. One that is always an argument of the program (a seed) is never compiled in.
  double number = 0;
  int64_t integer = 0;
  bool always_argument = false;
  /// A seed of random numbers, or a collective: how many of them there were before it since the run began. -1: neither.
  int64_t ordinal = -1;

  /// Annotation: the layout.
  LayoutPtr layout = nullptr;
  /// Argument: its memory.
  std::unique_ptr<ArgumentData> data;

  /// The function of LibTorch that made it, for messages; a string that lives as long as the process.
  const char* origin = "";
  /// Whether a collective is among the operations that lead to it since the last execution.
  bool needs_others = false;

  /// Storages that hold it now, and the one that has taken it last.
  int owners = 0;
  void* holder = nullptr;
  /// Scratch of `collect`: which collection has seen it last, and its place there.
  uint32_t epoch = 0;
  uint32_t index = 0;

  Node();
  ~Node() override;
  int64_t numel() const;
};

using Value = c10::intrusive_ptr<Node>;

/// Names the function of LibTorch that the calling thread traces; null outside of one. Set by the dispatcher.
LOCKSTEP_API const char*& current_origin();

/// For messages: "unary exponential -> tensor<4xf32> (traced from aten::exp)".
LOCKSTEP_API std::string describe(const Node& node);

LOCKSTEP_API bool is_float(Dtype dtype);
/// The element type in MLIR's spelling; throws where XLA has none (complex, quantized).
LOCKSTEP_API const char* mlir_type(Dtype dtype);

}  // namespace lockstep::xla
