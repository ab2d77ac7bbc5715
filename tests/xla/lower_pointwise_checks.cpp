#include <cmath>
#include <iterator>
#include <limits>

#include "tests/xla/lower_checks.h"

namespace lockstep::xla::test {
namespace {

using at::Tensor;

struct Function {
  const char* name;
  Tensor (*call)(const Tensor&);
};
struct Function2 {
  const char* name;
  Tensor (*call)(const Tensor&, const Tensor&);
};

#define UNARY(name)                                    \
  {                                                    \
#name, [](const Tensor& x) { return at::name(x); } \
  }
#define BINARY(name)                                                       \
  {                                                                        \
#name, [](const Tensor& x, const Tensor& y) { return at::name(x, y); } \
  }

const Function kUnary[] = {
    UNARY(exp),
    UNARY(exp2),
    UNARY(expm1),
    UNARY(log),
    UNARY(log2),
    UNARY(log10),
    UNARY(log1p),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(tanh),
    UNARY(sigmoid),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(erf),
    UNARY(erfc),
    UNARY(erfinv),
    UNARY(sinc),
    UNARY(reciprocal),
    UNARY(neg),
    UNARY(abs),
    UNARY(sign),
    UNARY(sgn),
    UNARY(floor),
    UNARY(ceil),
    UNARY(round),
    UNARY(trunc),
    UNARY(frac),
    UNARY(square),
    UNARY(relu),
    UNARY(isnan),
    UNARY(isinf),
    UNARY(isfinite),
    UNARY(isposinf),
    UNARY(isneginf),
    UNARY(signbit),
    UNARY(logical_not),
    UNARY(bitwise_not),
    UNARY(nan_to_num),
    UNARY(sum),
    UNARY(mean),
    UNARY(amax),
    UNARY(amin),
    UNARY(max),
    UNARY(min),
    UNARY(any),
    UNARY(all),
    UNARY(argmax),
    UNARY(argmin),
    UNARY(count_nonzero),
    UNARY(nansum),
    {"aminmax",
     [](const Tensor& x) {
       return at::stack({std::get<0>(at::aminmax(x.detach())), std::get<1>(at::aminmax(x.detach()))});
     }},
    {"max.dim", [](const Tensor& x) { return std::get<1>(at::max(x, 0)); }},
    {"min.dim", [](const Tensor& x) { return std::get<1>(at::min(x, 0)); }},
    {"any.dim", [](const Tensor& x) { return at::any(x, 0); }},
    {"all.dim", [](const Tensor& x) { return at::all(x, 0, true); }},
    {"cumsum", [](const Tensor& x) { return at::cumsum(x, 0); }},
    {"cumprod", [](const Tensor& x) { return at::cumprod(x, 0); }},
    {"sort", [](const Tensor& x) { return std::get<0>(at::sort(x, 0, true)); }},
    {"softmax", [](const Tensor& x) { return at::softmax(x, 0); }},
    {"log_softmax", [](const Tensor& x) { return at::log_softmax(x, 0); }},
    {"logsumexp", [](const Tensor& x) { return at::logsumexp(x, 0); }},
    {"var", [](const Tensor& x) { return at::var(x); }},
    {"round.decimals", [](const Tensor& x) { return at::round(x, 1) + at::round(x * 10, -1); }},
    {"logit", [](const Tensor& x) { return at::logit(x, 0.25); }},
    {"add 2", [](const Tensor& x) { return x + 2; }},
    {"add alpha", [](const Tensor& x) { return at::add(x, x, 3); }},
    {"sub half", [](const Tensor& x) { return x - 0.5; }},
    {"rsub", [](const Tensor& x) { return 3 - x; }},
    {"mul half", [](const Tensor& x) { return x * 0.3; }},
    {"div 3", [](const Tensor& x) { return x / 3; }},
    {"pow 2", [](const Tensor& x) { return x.pow(2); }},
    {"pow 3", [](const Tensor& x) { return x.pow(3); }},
    {"pow 4", [](const Tensor& x) { return x.pow(4); }},
    {"pow 0", [](const Tensor& x) { return x.pow(0); }},
    {"pow half", [](const Tensor& x) { return x.pow(0.5); }},
    {"pow -1", [](const Tensor& x) { return x.pow(-1.0); }},
    {"pow -2", [](const Tensor& x) { return x.pow(-2.0); }},
    {"pow -half", [](const Tensor& x) { return x.pow(-0.5); }},
    {"pow 1.7", [](const Tensor& x) { return x.pow(1.7); }},
    {"pow of number", [](const Tensor& x) { return at::pow(2, x); }},
    {"eq", [](const Tensor& x) { return x == 1; }},
    {"ne", [](const Tensor& x) { return x != 1; }},
    {"lt", [](const Tensor& x) { return x < 0.5; }},
    {"le", [](const Tensor& x) { return x <= 1; }},
    {"gt", [](const Tensor& x) { return x > 1; }},
    {"ge", [](const Tensor& x) { return x >= 2.5; }},
    {"clamp", [](const Tensor& x) { return x.clamp(-1, 2); }},
    {"clamp_min", [](const Tensor& x) { return x.clamp_min(1); }},
    {"clamp_max", [](const Tensor& x) { return x.clamp_max(1.5); }},
    {"masked_fill", [](const Tensor& x) { return x.masked_fill(x > 1, 3); }},
    {"bitwise_and.Scalar", [](const Tensor& x) { return at::bitwise_and(x, 3); }},
    {"floor_divide 2", [](const Tensor& x) { return at::floor_divide(x.detach(), 2); }},
    {"remainder 2", [](const Tensor& x) { return at::remainder(x, 2); }},
    {"fmod -2", [](const Tensor& x) { return at::fmod(x, -2); }},
    {"cat",
     [](const Tensor& x) {
       return at::cat({x, x.to(at::kFloat)});
     }},
};

const Function2 kBinary[] = {
    BINARY(add),
    BINARY(sub),
    BINARY(mul),
    BINARY(div),
    BINARY(maximum),
    BINARY(minimum),
    BINARY(fmax),
    BINARY(fmin),
    BINARY(pow),
    BINARY(atan2),
    BINARY(hypot),
    BINARY(copysign),
    BINARY(logaddexp),
    BINARY(xlogy),
    BINARY(remainder),
    BINARY(fmod),
    {"floor_divide", [](const Tensor& x, const Tensor& y) { return at::floor_divide(x.detach(), y.detach()); }},
    BINARY(eq),
    BINARY(ne),
    BINARY(lt),
    BINARY(le),
    BINARY(gt),
    BINARY(ge),
    BINARY(logical_and),
    BINARY(logical_or),
    BINARY(logical_xor),
    BINARY(bitwise_and),
    BINARY(bitwise_or),
    BINARY(bitwise_xor),
    {"bitwise_left_shift", [](const Tensor& x, const Tensor& y) { return at::bitwise_left_shift(x, y.abs()); }},
    {"bitwise_right_shift", [](const Tensor& x, const Tensor& y) { return at::bitwise_right_shift(x, y.abs()); }},
    {"__lshift__", [](const Tensor& x, const Tensor& y) { return at::__lshift__(x, y.abs()); }},
    {"__rshift__", [](const Tensor& x, const Tensor& y) { return at::__rshift__(x, y.abs()); }},
    {"div trunc", [](const Tensor& x, const Tensor& y) { return at::div(x, y, "trunc"); }},
    {"div floor", [](const Tensor& x, const Tensor& y) { return at::div(x, y, "floor"); }},
    // Of numbers only: what comes of infinities differs between versions of LibTorch.
    {"lerp.Tensor",
     [](const Tensor& x, const Tensor& y) {
       return at::lerp(at::nan_to_num(x, 0, 2, -2), at::nan_to_num(y, 0, 2, -2), at::nan_to_num(y).sigmoid());
     }},
    {"where", [](const Tensor& x, const Tensor& y) { return at::where(x > y, x, y); }},
    {"clamp.Tensor", [](const Tensor& x, const Tensor& y) { return at::clamp(x, y, y + 1); }},
    {"clamp_min.Tensor", [](const Tensor& x, const Tensor& y) { return at::clamp_min(x, y); }},
    {"clamp_max.Tensor", [](const Tensor& x, const Tensor& y) { return at::clamp_max(x, y); }},
};

constexpr at::ScalarType kDtypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                      at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

/// Signs, halves, zeros and, where there are such, what is not a number.
Tensor special_values(at::ScalarType dtype) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values{-3, -2, -1, 0, 1, 2, 3, 5};
  if (dtype == at::kByte || dtype == at::kBool) values = {0, 1, 2, 3, 4, 5, 6, 7};
  const bool is_floating = at::isFloatingType(dtype);
  if (is_floating) values = {-inf, -3.5, -2.5, -1, -0.5, -0.0, 0, 0.25, 0.5, 1, 1.5, 2.5, 7, inf, nan};
  return at::tensor(values, at::kDouble).to(dtype);
}

/// Functions of floating point convert integers first, so one integer dtype stands for the others.
bool is_redundant(at::ScalarType input, at::ScalarType result) {
  return at::isIntegralType(input, /*includeBool=*/false) && input != at::kLong && at::isFloatingType(result);
}

/// Adds a check of a function of one dtype if the CPU supports it.
template <typename Run>
void add_if_supported(Checks& checks, std::string name, Tensors inputs, Run run) {
  // LibTorch's own dtypes disagree on the root of minus infinity.
  if (name == "pow half of Half" || name == "pow -half of Half") return;
  try {
    if (is_redundant(inputs[0].scalar_type(), run(inputs)[0].scalar_type())) return;
  } catch (const c10::Error&) {
    return;
  }
  checks.push_back({std::move(name), std::move(inputs), std::move(run)});
}

}  // namespace

Checks dtype_checks() {
  Checks checks;
  for (at::ScalarType dtype : kDtypes) {
    const std::string suffix = std::string(" of ") + at::toString(dtype);
    const Tensor values = special_values(dtype);
    for (const Function& function : kUnary) {
      add_if_supported(checks, function.name + suffix, {values},
                       [call = function.call](const Tensors& in) -> Tensors { return {call(in[0])}; });
    }
    // Divisors and exponents without the zero, which is an error for integers.
    const Tensor others =
        at::isFloatingType(dtype) ? values.roll(3) : at::where(values == 0, 2, values).roll(3).to(dtype);
    for (const Function2& function : kBinary) {
      add_if_supported(checks, function.name + suffix, {values, others},
                       [call = function.call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; });
    }
  }
  return checks;
}

Checks pointwise_checks() {
  Checks checks;
  for (const Function& function : kUnary) {
    add_if_supported(checks, function.name, {random({6, 5})},
                     [call = function.call](const Tensors& in) -> Tensors { return {call(in[0])}; });
  }
  const std::pair<std::vector<int64_t>, std::vector<int64_t>> shapes[] = {
      {{4, 5}, {4, 5}}, {{4, 1}, {1, 5}}, {{}, {3, 2}}, {{2, 1, 4}, {3, 1}}, {{0, 3}, {1, 3}}};
  // Broadcasting is one piece of code for all functions: the first ones are checked with every shape.
  constexpr size_t kWithEveryShape = 4, kForAll = 2;
  for (size_t i = 0; i < std::size(kBinary); ++i) {
    const Function2& function = kBinary[i];
    for (size_t j = 0; j < (i < kWithEveryShape ? std::size(shapes) : kForAll); ++j) {
      const auto& [first, second] = shapes[j];
      add_if_supported(checks, function.name, {positive(first), random(second)},
                       [call = function.call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; });
    }
  }
  const auto add = [&](const char* name, Tensors inputs, std::function<Tensors(const Tensors&)> run) {
    checks.push_back({name, std::move(inputs), std::move(run)});
  };
  add("lgamma", {positive({4, 3})}, [](const Tensors& in) -> Tensors { return {in[0].lgamma()}; });
  add("digamma", {positive({4, 3}).detach()}, [](const Tensors& in) -> Tensors { return {in[0].digamma()}; });
  add("rsub.Tensor", {random({3}), random({2, 3})}, [](const Tensors& in) -> Tensors {
    return {at::rsub(in[0], in[1], 2), at::rsub(in[0], 3, 2)};
  });
  add("lerp", {random({3, 4}), random({4})}, [](const Tensors& in) -> Tensors {
    return {at::lerp(in[0], in[1], 0.3), at::lerp(in[0], in[1], 0.7)};
  });
  add("addcmul", {random({3, 4}), random({4}), random({3, 1})},
      [](const Tensors& in) -> Tensors { return {at::addcmul(in[0], in[1], in[2], 0.3)}; });
  add("addcdiv", {random({3, 4}), random({4}), positive({3, 1})},
      [](const Tensors& in) -> Tensors { return {at::addcdiv(in[0], in[1], in[2], 0.3)}; });
  add("masked_fill.Tensor", {random({3, 4}), at::scalar_tensor(2.5, at::kDouble)},
      [](const Tensors& in) -> Tensors { return {at::masked_fill(in[0], in[0] > 0.5, in[1])}; });
  add("logit without eps", {at::rand({9}, at::kDouble).requires_grad_()},
      [](const Tensors& in) -> Tensors { return {at::logit(in[0])}; });
  add("in place and with results given", {random({3, 4}), random({3, 4})}, [](const Tensors& in) -> Tensors {
    Tensor a = in[0].detach().clone(), out = at::empty({0}, a.options());
    a.abs_()
        .pow_(2)
        .pow_(in[1].detach())
        .floor_divide_(in[1].detach())
        .mul_(0.5)
        .add_(in[1].detach(), 2)
        .clamp_(-1, 1)
        .div_(3);
    at::mul_out(out, a, in[1].detach());
    return {a, out, in[0].clone().mul_(in[1]).tanh_()};
  });
  return checks;
}

}  // namespace lockstep::xla::test
