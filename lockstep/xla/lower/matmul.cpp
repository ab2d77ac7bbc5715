#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

Value product_along(const Value& a, const Value& b, Ints batch_a, Ints batch_b, Ints contract_a, Ints contract_b) {
  if (!narrows(a, b)) return dot(a, b, batch_a, batch_b, contract_a, contract_b);
  const auto operand = [](const Value& of) { return convert(of, at::kBFloat16); };
  return dot(operand(a), operand(b), batch_a, batch_b, contract_a, contract_b, a->dtype);
}

Value matrix_product(const Value& a, const Value& b) { return product_along(a, b, {}, {}, {1}, {0}); }
Value batch_product(const Value& a, const Value& b) { return product_along(a, b, {0}, {0}, {2}, {1}); }
Value matrix_vector(const Value& a, const Value& b) { return product_along(a, b, {}, {}, {1}, {0}); }
Value inner_product(const Value& a, const Value& b) { return dot(a, b, {}, {}, {0}, {0}); }
Value outer_product(const Value& a, const Value& b) { return dot(a, b, {}, {}, {}, {}); }
Value sum_of_products(const Value& a, const Value& b) { return product_along(a, b, {}, {}, {0, 2}, {0, 1}); }

template <Value (*product_of)(const Value&, const Value&)>
Values matmul_of(const AtenCall& call) {
  return {product_of(call.value(0), call.value(1))};
}

/// beta * self + alpha * product; if beta is 0, self is ignored, NaN included.
template <Value (*product_of)(const Value&, const Value&)>
Value affine(const AtenCall& call) {  // self a b beta alpha
  Value result = product_of(call.value(1), call.value(2));
  if (call.number(4) != 1) result = result * call.scalar(4, result->dtype);
  if (call.number(3) == 0) return result;
  Value self = call.value(0, result->dtype);
  if (call.number(3) != 1) self = self * call.scalar(3, self->dtype);
  return result + broadcast(self, result->shape);
}
template <Value (*product_of)(const Value&, const Value&)>
Values affine_product(const AtenCall& call) {
  return {affine<product_of>(call)};
}

/// The product of three tensors in bilinear layers: dimensions of size 1 are inserted, and the product is summed along
/// some dimensions.
Values trilinear(const AtenCall& call) {  // i1 i2 i3 expand1 expand2 expand3 sumdim unroll_dim
  Value result;
  for (int i = 0; i < 3; ++i) {
    Value factor = call.value(i);
    Shape shape = factor->shape;
    for (int64_t dim : call.integers(3 + i)) shape.insert(shape.begin() + dim, 1);
    factor = reshape(factor, shape);
    result = result ? result * factor : factor;
  }
  const std::vector<int64_t> dims = call.integers(6);
  return {dims.empty() ? result : sum(result, dims)};
}

const Lowering kProducts[] = {
    {"mm", matmul_of<matrix_product>},
    {"bmm", matmul_of<batch_product>},
    {"mv", matmul_of<matrix_vector>},
    {"dot", matmul_of<inner_product>},
    {"vdot", matmul_of<inner_product>},
    {"addmm", affine_product<matrix_product>},
    {"baddbmm", affine_product<batch_product>},
    {"addmv", affine_product<matrix_vector>},
    {"addr", affine_product<outer_product>},
    {"_trilinear", trilinear},
    {"addbmm", affine_product<sum_of_products>},
};

}  // namespace

Lowerings matmul_lowerings() { return kProducts; }

}  // namespace lockstep::xla
