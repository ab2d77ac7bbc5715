#include <cmath>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// The dtype that random numbers for a tensor are drawn in.
Dtype drawn_dtype(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

Value uniform(const AtenCall& call, int generator, Dtype dtype, Ints shape) {
  return random_uniform(call.seed(generator), dtype, shape);
}

/// Uniform in (0, 1), so that the logarithm is finite and not 0.
Value positive_uniform(const AtenCall& call, int generator, Dtype dtype, Ints shape) {
  return maximum(uniform(call, generator, dtype, shape), std::ldexp(1.0, dtype == at::kDouble ? -54 : -25));
}

Value exponential(const AtenCall& call, int generator, Dtype dtype, Ints shape) {
  return -log(positive_uniform(call, generator, dtype, shape));
}

/// The Box-Muller transform: a length and an angle.
Value normal(const AtenCall& call, int generator, Dtype dtype, Ints shape) {
  const Value angle = uniform(call, generator, dtype, shape) * (2 * M_PI);
  return sqrt(exponential(call, generator, dtype, shape) * 2) * unary(UnaryOp::Cosine, angle);
}

/// Rows of functions that overwrite their first argument with `formula` of random numbers.
template <Value (*draw)(const AtenCall&, int, Dtype, Ints), int generator, auto formula>
Values overwriting(const AtenCall& call) {
  const Dtype dtype = dtype_of(call, 0);
  return {convert(formula(draw(call, generator, drawn_dtype(dtype), call.tensor(0).sizes()), call), dtype)};
}

Value below(const Value& drawn, const Value& probability) { return compare(Comparison::LT, drawn, probability); }

Values bernoulli(const AtenCall& call) {  // self generator; self are probabilities
  const Value probability = call.value(0, drawn_dtype(dtype_of(call, 0)));
  return {convert(below(uniform(call, 1, probability->dtype, probability->shape), probability), dtype_of(call, 0))};
}
Values bernoulli_of_tensor(const AtenCall& call) {  // self probability generator
  const Value probability = call.value(1, drawn_dtype(dtype_of(call, 1)));
  return {convert(below(uniform(call, 2, probability->dtype, call.tensor(0).sizes()), probability), dtype_of(call, 0))};
}

/// Drawn in the tensor's own dtype, so that rounding does not reach the upper end.
Values uniform_in_range(const AtenCall& call) {  // self from to generator
  const Value drawn = widened(random_uniform(call.seed(3), dtype_of(call, 0), call.tensor(0).sizes()));
  const Value from = call.scalar(1, drawn->dtype), to = call.scalar(2, drawn->dtype);
  return {convert(drawn * (to - from) + from, dtype_of(call, 0))};
}
Value scaled(const Value& drawn, const AtenCall& call) {  // self mean std
  return drawn * call.scalar(2, drawn->dtype) + call.scalar(1, drawn->dtype);
}
Value geometric(const Value& drawn, const AtenCall& call) {  // self p
  return ceil(log(drawn) / log1p(-call.scalar(1, drawn->dtype)));
}
Value cauchy(const Value& drawn, const AtenCall& call) {  // self median sigma
  return call.scalar(1, drawn->dtype) + call.scalar(2, drawn->dtype) * unary(UnaryOp::Tan, (drawn - 0.5) * M_PI);
}

/// Numbers of the common shape of mean and deviation.
Values normal_of_tensors(const AtenCall& call) {  // mean std generator
  const int like = call.argument(0).isTensor() ? 0 : 1;
  const Dtype dtype = like == 0 && call.argument(1).isTensor() ? call.promoted(0, 1) : dtype_of(call, like);
  const Dtype drawn = drawn_dtype(dtype);
  const auto parameter = [&](int i) {
    return call.argument(i).isTensor() ? call.value(i, drawn) : call.scalar(i, drawn);
  };
  const Value mean = parameter(0), deviation = parameter(1);
  const Value shape = broadcast(mean, (mean + deviation)->shape);
  return {convert(normal(call, 2, drawn, shape->shape) * deviation + mean, dtype)};
}

/// How many integers a dtype counts without a gap from 0, as LibTorch's random_ does; 0: all 64 bits.
int64_t range_of(Dtype dtype) {
  switch (dtype) {
    case at::kBool:
      return 2;
    case at::kByte:
      return int64_t{1} << 8;
    case at::kChar:
      return int64_t{1} << 7;
    case at::kShort:
      return int64_t{1} << 15;
    case at::kInt:
      return int64_t{1} << 31;
    case at::kHalf:
      return (int64_t{1} << 11) + 1;
    case at::kBFloat16:
      return (int64_t{1} << 8) + 1;
    case at::kFloat:
      return (int64_t{1} << 24) + 1;
    case at::kDouble:
      return (int64_t{1} << 53) + 1;
    default:
      return 0;
  }
}

Values integers(const AtenCall& call, int generator, const Value& from, const Value& count) {
  const Value bits = random_bits(call.seed(generator), at::kLong, call.tensor(0).sizes());
  const Value positive = binary(BinaryOp::ShiftRightLogical, bits, number_like(1, bits));
  const Value drawn = count ? binary(BinaryOp::Remainder, positive, count) : positive;
  return {convert(from ? drawn + from : drawn, dtype_of(call, 0))};
}
Values any_integers(const AtenCall& call) {  // self generator
  const int64_t count = range_of(dtype_of(call, 0));
  return integers(call, 1, {}, count == 0 ? Value() : integer(count, at::kLong));
}
Values integers_to(const AtenCall& call) {  // self to generator
  return integers(call, 2, {}, call.scalar(1, at::kLong));
}
Values integers_from(const AtenCall& call) {  // self from to generator
  const Value from = call.scalar(1, at::kLong);
  return integers(call, 3, from, call.scalar(2, at::kLong) - from);
}

/// Sorts by random keys. LibTorch's other forms call this one.
Values permutation(const AtenCall& call) {  // n generator out
  const Value keys = random_bits(call.seed(1), at::kLong, {call.integer(0)});
  return {convert(sort(keys, 0, false).indices, dtype_of(call, 2))};
}

Values dropout_gradient(const AtenCall& call) {  // gradient mask scale
  const Value gradient = widened(call.value(0));
  const Value kept = call.value(1, gradient->dtype) * call.scalar(2, gradient->dtype);
  return {convert(gradient * kept, dtype_of(call, 0))};
}

/// Each category has an exponential waiting time with its probability as rate; the first ones are drawn.
Values multinomial(const AtenCall& call) {  // self num_samples replacement generator
  const Value weights = widened(call.value(0));
  const Value waits = exponential(call, 3, weights->dtype, weights->shape);
  const int64_t dim = rank(weights) - 1;
  Shape end = weights->shape;
  end[dim] = call.integer(1);
  return {slice(sort(weights / waits, dim, true).indices, Shape(end.size(), 0), end)};
}
bool draws_each_once(const AtenCall& call) { return !call.flag(2) || call.integer(1) == 1; }

const Lowering kRandom[] = {
    {"bernoulli", bernoulli},
    {"bernoulli_.Tensor", bernoulli_of_tensor},
    {"bernoulli_.float",
     overwriting<uniform, 2,
                 [](Value drawn, const AtenCall& call) { return below(drawn, call.scalar(1, drawn->dtype)); }>},
    {"uniform_", uniform_in_range},
    {"normal_", overwriting<normal, 3, scaled>},
    {"log_normal_", overwriting<normal, 3, [](Value drawn, const AtenCall& call) { return exp(scaled(drawn, call)); }>},
    {"exponential_",
     overwriting<exponential, 2,
                 [](Value drawn, const AtenCall& call) { return drawn / call.scalar(1, drawn->dtype); }>},
    {"geometric_", overwriting<positive_uniform, 2, geometric>},
    {"cauchy_", overwriting<positive_uniform, 3, cauchy>},
    {"normal.Tensor_float", normal_of_tensors},
    {"normal.float_Tensor", normal_of_tensors},
    {"normal.Tensor_Tensor", normal_of_tensors},
    {"random_", any_integers},
    {"random_.to", integers_to},
    {"random_.from", integers_from, [](const AtenCall& call) { return !call.is_none(2); }},
    {"randperm.generator_out", permutation},
    {"native_dropout_backward", dropout_gradient},
    {"multinomial", multinomial, draws_each_once},
};

}  // namespace

Lowerings random_lowerings() { return kRandom; }

}  // namespace lockstep::xla
