#include <optional>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// One resized dimension, and the requested scale, if any.
struct Resizing {
  int64_t from, to;
  std::optional<double> scale;

  /// Steps of the source for one step of the result.
  double step() const { return scale && *scale > 0 ? 1 / *scale : static_cast<double>(from) / static_cast<double>(to); }
};

/// Dimension `i` of the resized ones; the scales of the call begin at position `scales`.
Resizing resizing(const AtenCall& call, int scales, int64_t i, int64_t from, int64_t to) {
  const int at = scales + static_cast<int>(i);
  return {from, to, call.is_none(at) ? std::nullopt : std::optional(call.number(at))};
}

enum class Sampling { Nearest, NearestExact, Linear };

/// The source index of each element of the result, rounded in float32 as LibTorch does.
Value nearest(const Resizing& size, bool exact) {
  const Value position = iota(at::kFloat, {size.to}, 0);
  const Value source = floor((exact ? position + 0.5 : position) * size.step());
  return convert(minimum(source, static_cast<double>(size.from - 1)), at::kLong);
}

/// Each row blends two neighbours of the source: [to, from].
Value blending_matrix(const Resizing& size, bool align_corners, Dtype dtype) {
  const Shape shape{size.to, size.from};
  const Value position = iota(dtype, shape, 0);
  const double corners = size.to > 1 ? static_cast<double>(size.from - 1) / static_cast<double>(size.to - 1) : 0;
  const Value source = align_corners ? position * corners : maximum((position + 0.5) * size.step() - 0.5, 0);
  const Value within = minimum(source, static_cast<double>(size.from - 1));
  return maximum(1 - abs(within - iota(dtype, shape, 1)), 0);
}

/// Each row picks one element of the source: [to, from].
Value picking_matrix(const Resizing& size, bool exact, Dtype dtype) {
  const Shape shape{size.to, size.from};
  const Value source = broadcast_dims(nearest(size, exact), shape, {0});
  return convert(compare(Comparison::EQ, source, iota(at::kLong, shape, 1)), dtype);
}

bool is_linear(Sampling sampling) { return sampling == Sampling::Linear; }

template <Sampling sampling, int64_t dims>
Values upsample(const AtenCall& call) {  // self output_size [align_corners] scales...
  Value a = widened(call.value(0));
  const std::vector<int64_t> to = call.integers(1);
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t dim = i + 2;
    const Resizing size = resizing(call, is_linear(sampling) ? 3 : 2, i, a->shape[dim], to[i]);
    if (size.from == size.to) continue;
    a = is_linear(sampling) ? apply_along(a, blending_matrix(size, call.flag(2), a->dtype), dim)
                            : take(a, nearest(size, sampling == Sampling::NearestExact), dim);
  }
  return {convert(a, dtype_of(call, 0))};
}

template <Sampling sampling, int64_t dims>
Values upsample_gradient(const AtenCall& call) {  // gradient output_size input_size [align_corners] scales...
  Value gradient = widened(call.value(0));
  const std::vector<int64_t> to = call.integers(1), from = call.integers(2);
  for (int64_t i = 0; i < dims; ++i) {
    const Resizing size = resizing(call, is_linear(sampling) ? 4 : 3, i, from[i + 2], to[i]);
    if (size.from == size.to) continue;
    const Value matrix = is_linear(sampling)
                             ? blending_matrix(size, call.flag(3), gradient->dtype)
                             : picking_matrix(size, sampling == Sampling::NearestExact, gradient->dtype);
    gradient = apply_along(gradient, transpose(matrix, {1, 0}), i + 2);
  }
  return {convert(gradient, dtype_of(call, 0))};
}

#define LOCKSTEP_XLA_UPSAMPLE(name, sampling, dims) \
  {name, upsample<sampling, dims>}, { name "_backward", upsample_gradient<sampling, dims> }

const Lowering kResizes[] = {
    LOCKSTEP_XLA_UPSAMPLE("upsample_nearest1d", Sampling::Nearest, 1),
    LOCKSTEP_XLA_UPSAMPLE("upsample_nearest2d", Sampling::Nearest, 2),
    LOCKSTEP_XLA_UPSAMPLE("upsample_nearest3d", Sampling::Nearest, 3),
    LOCKSTEP_XLA_UPSAMPLE("_upsample_nearest_exact1d", Sampling::NearestExact, 1),
    LOCKSTEP_XLA_UPSAMPLE("_upsample_nearest_exact2d", Sampling::NearestExact, 2),
    LOCKSTEP_XLA_UPSAMPLE("_upsample_nearest_exact3d", Sampling::NearestExact, 3),
    LOCKSTEP_XLA_UPSAMPLE("upsample_linear1d", Sampling::Linear, 1),
    LOCKSTEP_XLA_UPSAMPLE("upsample_bilinear2d", Sampling::Linear, 2),
    LOCKSTEP_XLA_UPSAMPLE("upsample_trilinear3d", Sampling::Linear, 3),
};

#undef LOCKSTEP_XLA_UPSAMPLE

}  // namespace

Lowerings resize_lowerings() { return kResizes; }

}  // namespace lockstep::xla
