#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/dtype_name.h"
#include "lockstep/state/state.h"

namespace lockstep::tests {

inline std::string fixture(const std::string& name) { return LOCKSTEP_FIXTURES "/" + name; }

inline nlohmann::json expected_values(const std::string& folder) {
  std::ifstream file(fixture(folder + "/expected.json"));
  return nlohmann::json::parse(file);
}

/// Compares a tensor with {"dtype", "shape", "data"}; numbers that are not finite are texts.
inline void expect_tensor(const at::Tensor& tensor, const nlohmann::json& expected) {
  EXPECT_EQ(dtype_name(tensor.scalar_type()), expected["dtype"].get<std::string>());
  ASSERT_EQ(tensor.sizes().vec(), expected["shape"].get<std::vector<int64_t>>());
  const at::Tensor flat = tensor.reshape(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const nlohmann::json& value = expected["data"][static_cast<size_t>(i)];
    if (value.is_boolean()) {
      EXPECT_EQ(flat[i].item<bool>(), value.get<bool>());
    } else if (value.is_string()) {
      const double number = std::strtod(value.get<std::string>().c_str(), nullptr);
      const double found = flat[i].item<double>();
      EXPECT_TRUE(found == number || (std::isnan(found) && std::isnan(number))) << value;
    } else if (value.is_number_float()) {
      EXPECT_EQ(flat[i].item<double>(), value.get<double>());
      EXPECT_EQ(std::signbit(flat[i].item<double>()), std::signbit(value.get<double>()));
    } else {
      EXPECT_EQ(flat[i].item<int64_t>(), value.get<int64_t>());
    }
  }
}

/// Compares a state with an object of names and values.
inline void expect_state(const State& state, const nlohmann::json& expected) {
  EXPECT_EQ(state.size(), expected.size());
  for (const auto& [name, value] : expected.items()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(state.has(name));
    if (value.is_object()) {
      expect_tensor(state.tensor(name).read(), value);
    } else if (value.is_boolean()) {
      EXPECT_EQ(state.flag(name), value.get<bool>());
    } else if (value.is_number_float()) {
      EXPECT_EQ(state.number(name), value.get<double>());
    } else if (value.is_string()) {
      EXPECT_EQ(state.text(name), value.get<std::string>());
    } else {
      EXPECT_EQ(state.integer(name), value.get<int64_t>());
    }
  }
}

}  // namespace lockstep::tests
