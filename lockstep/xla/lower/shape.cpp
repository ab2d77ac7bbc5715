#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Empty tensors of one dimension join anything, as in LibTorch.
Values cat(const AtenCall& call) {  // tensors dim
  const std::vector<at::Tensor> tensors = call.tensors(0);
  Dtype dtype = tensors.at(0).scalar_type();
  for (const at::Tensor& tensor : tensors) dtype = c10::promoteTypes(dtype, tensor.scalar_type());
  std::vector<Value> parts;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() != 1 || tensor.numel() > 0) parts.push_back(convert(call.value(tensor), dtype));
  }
  if (parts.empty()) return {fill(0, dtype, {0})};
  return {concatenate(parts, wrap_dim(call.integer(1), rank(parts[0])))};
}

template <bool upper>
Values triangle(const AtenCall& call) {  // self diagonal
  const Value a = call.value(0);
  const Value row = iota(at::kLong, a->shape, rank(a) - 2) + call.integer(1);
  return {select(compare(upper ? Comparison::LE : Comparison::GE, row, iota(at::kLong, a->shape, rank(a) - 1)), a, 0)};
}

Values flip(const AtenCall& call) {  // self dims
  const Value a = call.value(0);
  if (rank(a) == 0 || call.integers(1).empty()) return {a};
  return {reverse(a, wrap_dims(call.integers(1), rank(a)))};
}

/// The last `shift` entries along a dimension come first. A slice of `a` twice, so that the shift is only an offset.
Value rolled(const Value& a, int64_t shift, int64_t dim) {
  const int64_t size = a->shape[dim];
  if (size == 0) return a;
  Shape begin(a->shape.size(), 0), end = a->shape;
  begin[dim] = (size - shift % size) % size;
  end[dim] = begin[dim] + size;
  return slice(concatenate({a, a}, dim), begin, end);
}
Values roll(const AtenCall& call) {  // self shifts dims
  Value a = call.value(0);
  const std::vector<int64_t> shifts = call.integers(1), dims = call.integers(2);
  if (dims.empty()) return {reshape(rolled(reshape(a, {a->numel()}), shifts.at(0), 0), a->shape)};
  for (size_t i = 0; i < dims.size(); ++i) a = rolled(a, shifts[i], wrap_dim(dims[i], rank(a)));
  return {a};
}

const Lowering kShapes[] = {
    {"clone", [](const AtenCall& call) -> Values { return {call.value(0)}; }},
    {"cat", cat},
    {"triu", triangle<true>},
    {"tril", triangle<false>},
    {"flip", flip},
    {"roll", roll},
};

}  // namespace

Lowerings shape_lowerings() { return kShapes; }

}  // namespace lockstep::xla
