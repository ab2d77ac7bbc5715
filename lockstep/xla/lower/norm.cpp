#include <numeric>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> dims(end - begin);
  std::iota(dims.begin(), dims.end(), begin);
  return dims;
}

struct Normal {
  /// `a` with mean 0 and deviation 1 along some dimensions.
  Value value;
  /// With size 1 in those dimensions.
  Value mean, inverse;
};
Normal normalize(const Value& a, Ints dims, const Value& eps) {
  const double count = static_cast<double>(product(a->shape, dims));
  const Value mean = sum(a, dims, true) / count;
  const Value centred = a - mean;
  const Value inverse = rsqrt(sum(square(centred), dims, true) / count + eps);
  return {centred * inverse, mean, inverse};
}

/// The gradient of the input from that of the normalized values.
Value normalize_gradient(const Value& gradient, const Value& normal, const Value& inverse, Ints dims) {
  const double count = static_cast<double>(product(gradient->shape, dims));
  const Value mean = sum(gradient, dims, true) / count;
  const Value along_normal = sum(gradient * normal, dims, true) / count;
  return inverse * (gradient - mean - normal * along_normal);
}

Values layer_norm(const AtenCall& call) {  // input normalized_shape weight bias eps
  const Value a = widened(call.value(0));
  const int64_t inner = static_cast<int64_t>(call.integers(1).size());
  const Normal normal = normalize(a, range(rank(a) - inner, rank(a)), call.scalar(4, a->dtype));
  Value result = normal.value;
  if (call.has(2)) result = result * widened(call.value(2));
  if (call.has(3)) result = result + widened(call.value(3));
  return {convert(result, dtype_of(call, 0)), normal.mean, normal.inverse};
}

Values layer_norm_backward(const AtenCall& call) {  // gradient input normalized_shape mean rstd weight bias output_mask
  const Value gradient = widened(call.value(0)), a = widened(call.value(1));
  const Value inverse = call.value(4, a->dtype);
  const Value normal = (a - call.value(3, a->dtype)) * inverse;
  const int64_t outer = rank(a) - static_cast<int64_t>(call.integers(2).size());
  const auto wanted = call.argument(7).toBoolList();
  Values result(3);
  if (wanted[0]) {
    const Value scaled = call.has(5) ? gradient * widened(call.value(5)) : gradient;
    result[0] = convert(normalize_gradient(scaled, normal, inverse, range(outer, rank(a))), dtype_of(call, 1));
  }
  if (wanted[1] && call.has(5)) result[1] = convert(sum(gradient * normal, range(0, outer)), dtype_of(call, 5));
  if (wanted[2] && call.has(6)) result[2] = convert(sum(gradient, range(0, outer)), dtype_of(call, 6));
  return result;
}

/// [batch, groups, channels of a group, positions].
struct Groups {
  int64_t batch, channels, positions, groups;
  Groups(const AtenCall& call, int first)
      : batch(call.integer(first)),
        channels(call.integer(first + 1)),
        positions(call.integer(first + 2)),
        groups(call.integer(first + 3)) {}
  Value apart(const Value& a) const { return reshape(a, {batch, groups, channels / groups, positions}); }
  Value statistics(const Value& a) const { return reshape(a, {batch, groups, 1, 1}); }
  Value parameters(const Value& a) const { return reshape(a, {1, groups, channels / groups, 1}); }
};

Values group_norm(const AtenCall& call) {  // input weight bias N C HxW group eps
  const Value a = widened(call.value(0));
  const Groups groups(call, 3);
  const Normal normal = normalize(groups.apart(a), {2, 3}, call.scalar(7, a->dtype));
  Value result = normal.value;
  if (call.has(1)) result = result * groups.parameters(widened(call.value(1)));
  if (call.has(2)) result = result + groups.parameters(widened(call.value(2)));
  const Shape statistics{groups.batch, groups.groups};
  return {convert(reshape(result, a->shape), dtype_of(call, 0)), reshape(normal.mean, statistics),
          reshape(normal.inverse, statistics)};
}

Values group_norm_backward(const AtenCall& call) {  // gradient input mean rstd weight N C HxW group output_mask
  const Groups groups(call, 5);
  const Value gradient = groups.apart(widened(call.value(0))), a = groups.apart(widened(call.value(1)));
  const Value inverse = groups.statistics(call.value(3, a->dtype));
  const Value normal = (a - groups.statistics(call.value(2, a->dtype))) * inverse;
  const auto wanted = call.argument(9).toBoolList();
  const Dtype parameters = dtype_of(call, call.has(4) ? 4 : 1);
  const auto per_channel = [&](const Value& each) {
    return convert(reshape(sum(each, {0, 3}), {groups.channels}), parameters);
  };
  Values result(3);
  if (wanted[0]) {
    const Value scaled = call.has(4) ? gradient * groups.parameters(widened(call.value(4))) : gradient;
    const Value of_input = normalize_gradient(scaled, normal, inverse, {2, 3});
    result[0] = convert(reshape(of_input, call.tensor(1).sizes()), dtype_of(call, 1));
  }
  if (wanted[1]) result[1] = per_channel(gradient * normal);
  if (wanted[2]) result[2] = per_channel(gradient);
  return result;
}

const Lowering kNorms[] = {
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm", group_norm},
    {"native_group_norm_backward", group_norm_backward},
};

}  // namespace

Lowerings norm_lowerings() { return kNorms; }

}  // namespace lockstep::xla
