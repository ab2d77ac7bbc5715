#pragma once

#include <gtest/gtest.h>

#include "lockstep/lockstep.h"

namespace lockstep::test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (list_physical_devices("GPU").empty()) GTEST_SKIP() << "needs a GPU";
  }
};

const auto kOneDevice = [] { return Strategy(OneDeviceStrategy("GPU:0")); };

}  // namespace lockstep::test
