#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/xla/graph/node.h"

/// Builders of the graph. Each infers the shape of its result. Operands of `binary`, `compare` and `select` broadcast
/// by LibTorch's rules; the rest follows StableHLO. Shapes that do not match are errors that name the traced function.
namespace lockstep::xla {

LOCKSTEP_API Value argument(std::unique_ptr<ArgumentData> data, Dtype dtype, Ints shape);

/// A number is a constant of the program until its value changes between runs or replicas; then it is an argument.
LOCKSTEP_API Value number(double value, Dtype dtype);
LOCKSTEP_API Value integer(int64_t value, Dtype dtype, bool always_argument = false);
LOCKSTEP_API Value number_like(double value, const Value& other);
LOCKSTEP_API Value fill(double value, Dtype dtype, Ints shape);
LOCKSTEP_API Value fill_integer(int64_t value, Dtype dtype, Ints shape);
/// Counts along `dim`.
LOCKSTEP_API Value iota(Dtype dtype, Ints shape, int64_t dim);

/// Of the dtype of `a`; IsFinite returns bool.
LOCKSTEP_API Value unary(UnaryOp op, Value a);
/// Both operands have one dtype.
LOCKSTEP_API Value binary(BinaryOp op, Value a, Value b);
LOCKSTEP_API Value compare(Comparison direction, Value a, Value b);
LOCKSTEP_API Value select(Value condition, Value if_true, Value if_false);
/// By LibTorch's rules: every number except zero becomes true.
LOCKSTEP_API Value convert(Value a, Dtype dtype);

LOCKSTEP_API Value add(Value a, Value b);
LOCKSTEP_API Value subtract(Value a, Value b);
LOCKSTEP_API Value multiply(Value a, Value b);
LOCKSTEP_API Value divide(Value a, Value b);
LOCKSTEP_API Value plus(Value a, double number);
LOCKSTEP_API Value times(Value a, double number);

/// Aligned at the last dimension.
LOCKSTEP_API Value broadcast(Value a, Ints shape);
/// Dimension i of `a` becomes dimension `dims[i]`.
LOCKSTEP_API Value broadcast_dims(Value a, Ints shape, Ints dims);
LOCKSTEP_API Value reshape(Value a, Ints shape);
LOCKSTEP_API Value transpose(Value a, Ints permutation);
LOCKSTEP_API Value slice(Value a, Ints begin, Ints end);
/// Amounts may be negative.
LOCKSTEP_API Value pad(Value a, double value, Ints low, Ints high);
LOCKSTEP_API Value concatenate(const std::vector<Value>& parts, int64_t dim);
LOCKSTEP_API Value update_slice(Value base, Value part, Ints begin);
/// Turns a Slice or UpdateSlice into its dynamic form, in place: where it begins are numbers. `is_argument` has an
/// entry for each dimension; the others stay constants until they change.
LOCKSTEP_API void make_dynamic_slice(Node& node, c10::ArrayRef<char> is_argument);
/// Where a Slice or UpdateSlice begins; empty for other operations.
LOCKSTEP_API Ints begin_of(const Node& node);
LOCKSTEP_API Value reverse(Value a, Ints dims);

/// Returns `a` itself if there are no dims.
LOCKSTEP_API Value reduce(Combiner combiner, Value a, Ints dims, bool keep_dims = false);
LOCKSTEP_API Value sum(Value a, Ints dims, bool keep_dims = false);

/// Operands are of one dtype; the sums may be of a wider one.
LOCKSTEP_API Value dot(Value a, Value b, Ints batch_a, Ints batch_b, Ints contract_a, Ints contract_b,
                       std::optional<Dtype> result_dtype = std::nullopt);

struct ConvolutionWindow {
  ConvolutionUse use = ConvolutionUse::Forward;
  std::vector<int64_t> stride, low, high, input_dilation, kernel_dilation;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
};
LOCKSTEP_API Value convolution(Value input, Value kernel, const ConvolutionWindow& window, Ints result_shape,
                               std::optional<Dtype> result_dtype = std::nullopt);

/// One entry for each dimension of the operand.
struct Window {
  std::vector<int64_t> size, stride, low, high;
  /// Empty for no dilation.
  std::vector<int64_t> dilation;
};
LOCKSTEP_API Value reduce_window(Combiner combiner, Value a, double initial, const Window& window, Ints result_shape);
/// The entry of `positions` at the first maximum of each window. Positions increase from element to element; NaN is
/// greater than every number.
LOCKSTEP_API Value window_max_index(Value a, Value positions, const Window& window, Ints result_shape);
/// Adds each entry of `gradient` at the first maximum of its window of `a`. Windows lie inside `a`.
LOCKSTEP_API Value select_and_scatter(Value a, Value gradient, const Window& window);

/// The slices of `table` along `dim` at `indices`, which have any shape.
LOCKSTEP_API Value take(Value table, Value indices, int64_t dim);
/// Combines rows of `updates` into the rows of `base` (dimension 0) at `indices`; Combiner::Update replaces them.
LOCKSTEP_API Value scatter(Combiner combiner, Value base, Value indices, Value updates);

struct Sorted {
  Value values;
  /// int64.
  Value indices;
};
/// A stable sort along `dim`; NaN is greater than every number.
LOCKSTEP_API Sorted sort(Value a, int64_t dim, bool descending);

/// Random bits, 32 (at::kInt) or 64 (at::kLong) for each element. They depend only on `seed`, an int64 number that is
/// always an argument.
LOCKSTEP_API Value random_bits(Value seed, Dtype dtype, Ints shape);
/// Uniform in [0, 1): float32 and narrower from 24 random bits, float64 from 53.
LOCKSTEP_API Value random_uniform(Value seed, Dtype dtype, Ints shape);

/// Combines the values of all replicas with Add, Maximum or Minimum. With `groups`, the members of each group of
/// `replicas`, one group after the other, those of each group alone.
LOCKSTEP_API Value all_reduce(Combiner combiner, Value a, int replicas, Ints groups = {});
/// Stacks the values of all replicas, or of the members of each group, along a new first dimension.
LOCKSTEP_API Value all_gather(Value a, int replicas, Ints groups = {});

LOCKSTEP_API Value annotate(Value a, LayoutPtr layout);

LOCKSTEP_API bool is_number(const Value& value, double number);

}  // namespace lockstep::xla
