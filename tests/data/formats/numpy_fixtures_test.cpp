#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"

namespace lockstep::data {
namespace {

const std::string kFolder = LOCKSTEP_FIXTURES "/numpy/";

at::ScalarType expected_type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes{
      {"bool", at::kBool},    {"int8", at::kChar},     {"int16", at::kShort},    {"int32", at::kInt},
      {">i4", at::kInt},      {"int64", at::kLong},    {"uint8", at::kByte},     {"uint16", at::kInt},
      {"float16", at::kHalf}, {"float32", at::kFloat}, {"float64", at::kDouble}, {"complex64", at::kComplexFloat},
  };
  return kTypes.at(name);
}

double number_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_string()) return std::stod(value.get<std::string>());
  return value.get<double>();
}

void expect_array(const at::Tensor& tensor, const nlohmann::json& expected) {
  EXPECT_EQ(tensor.scalar_type(), expected_type(expected.at("dtype")));
  EXPECT_EQ(tensor.sizes().vec(), expected.at("shape").get<std::vector<int64_t>>());
  at::Tensor flat = tensor.contiguous().reshape({-1});
  std::vector<double> values;
  for (const auto& value : expected.at("data")) {
    if (value.is_array()) {
      for (const auto& part : value) values.push_back(number_of(part));
    } else {
      values.push_back(number_of(value));
    }
  }
  if (flat.is_complex()) flat = at::view_as_real(flat).reshape({-1});
  const at::Tensor wanted = at::tensor(values, at::kDouble);
  EXPECT_TRUE(at::allclose(flat.to(at::kDouble), wanted, 0, 0, /*equal_nan=*/true)) << tensor;
}

TEST(NumpyFixturesTest, EveryFileIsReadAsNumPyReadsIt) {
  const auto all = nlohmann::json::parse(std::ifstream(kFolder + "expected.json"));
  int count = 0;
  for (const auto& [name, expected] : all.items()) {
    SCOPED_TRACE(name);
    ++count;
    if (expected.contains("reference_reader")) {
      EXPECT_THROW(load_npy(kFolder + name), DataError);
    } else if (expected.contains("arrays")) {
      const auto arrays = load_npz(kFolder + name);
      EXPECT_EQ(arrays.size(), expected.at("arrays").size());
      for (const auto& [key, array] : expected.at("arrays").items()) expect_array(arrays.at(key), array);
    } else {
      const at::Tensor tensor = load_npy(kFolder + name);
      expect_array(tensor, expected);
      const bool fortran = expected.at("fortran_order").get<bool>();
      EXPECT_TRUE(!fortran || tensor.stride(0) == 1);
    }
  }
  EXPECT_EQ(count, 27);
}

}  // namespace
}  // namespace lockstep::data
