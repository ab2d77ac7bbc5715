#pragma once

#include <cstdint>
#include <string>

#include "lockstep/api.h"

/// The operations of the graph, and the kinds that some of them come in.
namespace lockstep::xla {

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
  DynamicSlice,
  Pad,
  Concatenate,
  UpdateSlice,
  DynamicUpdateSlice,
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
  Scan,
  ScanOutput,
  Parameter,
  AllReduce,
  AllGather,
  Annotation,
};

/// Kinds of Op::Unary, with the names of StableHLO and CHLO.
enum class UnaryOp : uint8_t {
  Abs,
  Acos,
  Acosh,
  Asin,
  Asinh,
  Atan,
  Atanh,
  Ceil,
  Cosh,
  Cosine,
  Digamma,
  Erf,
  ErfInv,
  Erfc,
  Exponential,
  ExponentialMinusOne,
  Floor,
  IsFinite,
  Lgamma,
  Log,
  LogPlusOne,
  Logistic,
  Negate,
  Not,
  RoundNearestEven,
  Rsqrt,
  Sine,
  Sinh,
  Sqrt,
  Tan,
  Tanh,
};

/// Kinds of Op::Binary.
enum class BinaryOp : uint8_t {
  Add,
  And,
  Atan2,
  Divide,
  Maximum,
  Minimum,
  Multiply,
  Or,
  Power,
  Remainder,
  ShiftLeft,
  ShiftRightArithmetic,
  ShiftRightLogical,
  Subtract,
  Xor,
};

/// Kinds of Op::Compare.
enum class Comparison : uint8_t { EQ, NE, LT, LE, GT, GE };

/// How two elements become one: kinds of Op::Reduce, ReduceWindow, Scatter and AllReduce. `Update` takes the second
/// element; only Scatter has it.
enum class Combiner : uint8_t { Add, Multiply, Maximum, Minimum, And, Or, Update };

/// Kinds of Op::Sort.
enum class SortOrder : uint8_t { Ascending, Descending };

/// Kinds of Op::Convolution: which dimensions are batch and features.
enum class ConvolutionUse : uint8_t { Forward, InputGradient, WeightGradient };

/// The name in StableHLO or CHLO.
const char* mlir_name(UnaryOp op);
const char* mlir_name(BinaryOp op);
const char* mlir_name(Comparison direction);
const char* mlir_name(Combiner combiner);

/// Whether the operation belongs to CHLO, which the compiler breaks down into StableHLO.
bool is_chlo(UnaryOp op);

/// For messages: "unary exponential"; `kind` is a number of the enumeration that belongs to `op`.
std::string op_text(Op op, uint8_t kind);

}  // namespace lockstep::xla
