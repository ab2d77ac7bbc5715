#include "tests/golden/tensors.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"

namespace lockstep::golden {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 12> kTypes{{
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"int8", at::kChar},
    {"int16", at::kShort},
    {"int32", at::kInt},
    {"int64", at::kLong},
    {"uint8", at::kByte},
    {"bool", at::kBool},
    {"complex64", at::kComplexFloat},
    {"complex128", at::kComplexDouble},
}};

void flatten(const Json& nested, std::vector<Json>& elements) {
  if (!nested.is_array()) {
    elements.push_back(nested);
    return;
  }
  for (const Json& item : nested) flatten(item, elements);
}

std::vector<int64_t> shape_of(const Json& nested) {
  std::vector<int64_t> shape;
  for (const Json* level = &nested; level->is_array(); level = &(*level)[0]) {
    shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  return shape;
}

at::Tensor make_complex(const std::vector<Json>& elements, at::ScalarType type) {
  std::vector<c10::complex<double>> numbers;
  for (const Json& element : elements) {
    const bool is_pair = element.is_array();
    numbers.emplace_back(number_from_json(is_pair ? element[0] : element),
                         is_pair ? number_from_json(element[1]) : 0.0);
  }
  return at::tensor(numbers, at::kComplexDouble).to(type);
}

at::Tensor make_tensor(const std::vector<Json>& elements, const std::vector<int64_t>& shape, at::ScalarType type) {
  if (at::isComplexType(type)) return make_complex(elements, type).reshape(shape);
  if (at::isFloatingType(type)) {
    std::vector<double> numbers;
    for (const Json& element : elements) numbers.push_back(number_from_json(element));
    return at::tensor(numbers, at::kDouble).to(type).reshape(shape);
  }
  std::vector<int64_t> numbers;
  for (const Json& element : elements) {
    numbers.push_back(element.is_boolean() ? element.get<bool>() : element.get<int64_t>());
  }
  return at::tensor(numbers, at::kLong).to(type).reshape(shape);
}

Json element_to_json(const at::Tensor& element) {
  const at::ScalarType type = element.scalar_type();
  if (type == at::kBool) return element.item<bool>();
  if (at::isIntegralType(type, /*includeBool=*/false)) return element.item<int64_t>();
  if (!at::isComplexType(type)) return number_to_json(element.item<double>());
  const auto number = element.item<c10::complex<double>>();
  return Json::array({number_to_json(number.real()), number_to_json(number.imag())});
}

}  // namespace

at::ScalarType scalar_type(std::string_view dtype) {
  for (const auto& [name, type] : kTypes) {
    if (name == dtype) return type;
  }
  if (dtype == "string") throw DoesNotCompile("LibTorch has no tensors of text");
  if (dtype.starts_with("uint")) throw DoesNotCompile("LibTorch 1.13 has no unsigned type but uint8");
  throw HarnessError("[scalar_type] unknown: dtype=" + std::string(dtype));
}

std::string_view dtype_name(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  throw HarnessError("[dtype_name] unknown: type=" + std::string(at::toString(type)));
}

Json number_to_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double number_from_json(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == "NaN") return std::nan("");
  if (value == "Infinity") return HUGE_VAL;
  if (value == "-Infinity") return -HUGE_VAL;
  return value.get<double>();
}

Json to_json(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().cpu().contiguous().reshape({-1});
  Json data = Json::array();
  for (int64_t i = 0; i < flat.numel(); ++i) data.push_back(element_to_json(flat[i]));
  return {{"dtype", std::string(dtype_name(tensor.scalar_type()))}, {"shape", tensor.sizes().vec()}, {"data", data}};
}

at::Tensor tensor_from_json(const Json& tensor) {
  const std::vector<Json> elements(tensor.at("data").begin(), tensor.at("data").end());
  return make_tensor(elements, tensor.at("shape").get<std::vector<int64_t>>(),
                     scalar_type(tensor.at("dtype").get<std::string>()));
}

at::Tensor tensor_from_json(std::string_view dtype, const Json& nested) {
  std::vector<Json> elements;
  flatten(nested, elements);
  return make_tensor(elements, shape_of(nested), scalar_type(dtype));
}

}  // namespace lockstep::golden
