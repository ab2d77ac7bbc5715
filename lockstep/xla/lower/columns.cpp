#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Windows over images, unrolled into columns: [batch, channels, positions in a window, windows].
struct Columns {
  int64_t batch, channels, height, width;
  std::vector<int64_t> kernel, dilation, padding, stride;

  int64_t padded(int i) const { return (i == 0 ? height : width) + 2 * padding[i]; }
  int64_t windows(int i) const { return (padded(i) - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1; }

  /// For each position in a window and each window, the address in the padded image.
  Value positions() const {
    const Shape shape{kernel[0], kernel[1], windows(0), windows(1)};
    const auto along = [&](int i) {
      return iota(at::kLong, shape, i) * dilation[i] + iota(at::kLong, shape, 2 + i) * stride[i];
    };
    return along(0) * padded(1) + along(1);
  }
};

/// `first` is the position of `kernel_size`; `dilation`, `padding`, `stride` follow.
Columns columns(const AtenCall& call, int first, Ints image) {
  return {image[0],
          image[1],
          image[2],
          image[3],
          expanded(call.integers(first), 2),
          expanded(call.integers(first + 1), 2),
          expanded(call.integers(first + 2), 2),
          expanded(call.integers(first + 3), 2)};
}

/// Adds a batch dimension of 1 if there is none.
Value batched(const Value& a, int64_t dims) {
  Shape shape = a->shape;
  if (rank(a) < dims) shape.insert(shape.begin(), 1);
  return reshape(a, shape);
}
Value unbatched(const Value& a, bool had_batch) { return had_batch ? a : reshape(a, Ints(a->shape).slice(1)); }

Values image_to_columns(const AtenCall& call) {  // self kernel_size dilation padding stride
  const Value a = batched(call.value(0), 4);
  const Columns at = columns(call, 1, a->shape);
  const Shape edge{0, 0, at.padding[0], at.padding[1]};
  const Value flat = reshape(pad(a, 0, edge, edge), {at.batch, at.channels, at.padded(0) * at.padded(1)});
  const Value unrolled = take(flat, at.positions(), 2);
  const Value result =
      reshape(unrolled, {at.batch, at.channels * at.kernel[0] * at.kernel[1], at.windows(0) * at.windows(1)});
  return {unbatched(result, call.tensor(0).dim() == 4)};
}

/// Overlapping positions are summed.
Values columns_to_image(const AtenCall& call) {  // self output_size kernel_size dilation padding stride
  const Value a = batched(widened(call.value(0)), 3);
  const std::vector<int64_t> size = expanded(call.integers(1), 2), kernel = expanded(call.integers(2), 2);
  const Shape image{a->shape[0], a->shape[1] / (kernel[0] * kernel[1]), size[0], size[1]};
  const Columns at = columns(call, 2, image);
  const int64_t rows = at.batch * at.channels;
  const Value apart = reshape(a, {rows, kernel[0], kernel[1], at.windows(0), at.windows(1)});
  const Value zeros = fill(0, a->dtype, {at.padded(0) * at.padded(1), rows});
  const Value sums = scatter(Combiner::Add, zeros, at.positions(), transpose(apart, {1, 2, 3, 4, 0}));
  const Value whole = reshape(transpose(sums, {1, 0}), {at.batch, at.channels, at.padded(0), at.padded(1)});
  const Shape begin{0, 0, at.padding[0], at.padding[1]};
  const Shape end{at.batch, at.channels, at.padding[0] + size[0], at.padding[1] + size[1]};
  return {convert(unbatched(slice(whole, begin, end), call.tensor(0).dim() == 3), dtype_of(call, 0))};
}

const Lowering kColumns[] = {
    {"im2col", image_to_columns},
    {"col2im", columns_to_image},
};

}  // namespace

Lowerings column_lowerings() { return kColumns; }

}  // namespace lockstep::xla
