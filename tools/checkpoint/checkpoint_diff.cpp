#include "tools/checkpoint/checkpoint_diff.h"

#include <cmath>
#include <limits>
#include <optional>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/progress/progress.h"

namespace lockstep::tools {
namespace {

struct NumberDifference {
  double largest = 0;
  /// How many elements differ by more than the tolerance.
  int64_t count = 0;
};

double absolute_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

/// Exact for all integers: as doubles, large ones that differ could be equal.
at::Tensor differences(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == at::kLong) {
    const at::Tensor plain = a.to(at::kDouble).sub_(b.to(at::kDouble)).abs_();
    return at::where(a.ne(b), plain.clamp_min(1), plain.new_zeros({}));
  }
  const at::Tensor x = a.to(at::kDouble);
  const at::Tensor y = b.to(at::kDouble);
  const at::Tensor equal = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor plain = x.sub(y).abs_();
  const at::Tensor counted =
      at::where(plain.isnan(), plain.new_full({}, std::numeric_limits<double>::infinity()), plain);
  return at::where(equal, plain.new_zeros({}), counted);
}

NumberDifference compare_tensors(const StateTensor& first, const StateTensor& second, double tolerance) {
  at::Tensor a = first.read();
  at::Tensor b = second.read();
  if (a.is_complex()) {
    a = at::view_as_real(a);
    b = at::view_as_real(b);
  }
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  a = a.reshape(-1);
  b = b.reshape(-1);
  NumberDifference result;
  for (int64_t i = 0; i < a.numel(); i += kAtOnce) {
    const int64_t count = std::min(kAtOnce, a.numel() - i);
    const at::Tensor found = differences(a.narrow(0, i, count), b.narrow(0, i, count));
    result.largest = std::max(result.largest, found.max().item<double>());
    result.count += found.gt(tolerance).sum().item<int64_t>();
  }
  return result;
}

std::optional<double> as_number(const State::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

bool same_exactly(const State::Value& a, const State::Value& b) {
  if (a.index() != b.index()) return false;
  if (const auto* flag = std::get_if<bool>(&a)) return *flag == std::get<bool>(b);
  if (const auto* integer = std::get_if<int64_t>(&a)) return *integer == std::get<int64_t>(b);
  if (const auto* number = std::get_if<double>(&a)) return absolute_difference(*number, std::get<double>(b)) == 0;
  return std::get<std::string>(a) == std::get<std::string>(b);
}

std::string shape_and_type(const StateTensor& tensor) {
  return c10::str(dtype_name(tensor.dtype), " ", at::IntArrayRef(tensor.sizes));
}

std::optional<Json> compare_values(const std::string& name, const State::Value& a, const State::Value& b,
                                   double tolerance) {
  const auto* const first = std::get_if<StateTensor>(&a);
  const auto* const second = std::get_if<StateTensor>(&b);
  if ((first == nullptr) != (second == nullptr)) return Json{{"name", name}, {"difference", "tensor and value"}};
  if (first != nullptr) {
    if (first->dtype != second->dtype || first->sizes != second->sizes) {
      return Json{{"name", name},
                  {"difference", "shape or dtype"},
                  {"first", shape_and_type(*first)},
                  {"second", shape_and_type(*second)}};
    }
    const NumberDifference found = compare_tensors(*first, *second, tolerance);
    if (found.count == 0) return std::nullopt;
    const Json largest = std::isfinite(found.largest) ? Json(found.largest) : Json("inf");
    return Json{{"name", name}, {"difference", "values"}, {"largest", largest}, {"elements", found.count}};
  }
  if (same_exactly(a, b)) return std::nullopt;
  const auto x = as_number(a);
  const auto y = as_number(b);
  if (!x || !y) return Json{{"name", name}, {"difference", "values"}};
  const double largest = absolute_difference(*x, *y);
  if (tolerance > 0 && largest <= tolerance) return std::nullopt;
  return Json{
      {"name", name}, {"difference", "values"}, {"largest", std::isfinite(largest) ? Json(largest) : Json("inf")}};
}

}  // namespace

std::vector<Json> compare(const State& first, const State& second, double tolerance) {
  std::vector<Json> found;
  progress::Task task("comparing", {.unit = "names", .total = static_cast<int64_t>(first.size())});
  for (const auto& [name, value] : first) {
    task.add(1);
    const State::Value* const other = second.find(name);
    if (other == nullptr) {
      found.push_back({{"name", name}, {"difference", "only in the first"}});
    } else if (auto difference = compare_values(name, value, *other, tolerance)) {
      found.push_back(std::move(*difference));
    }
  }
  for (const auto& [name, value] : second) {
    if (!first.has(name)) found.push_back({{"name", name}, {"difference", "only in the second"}});
  }
  return found;
}

}  // namespace lockstep::tools
