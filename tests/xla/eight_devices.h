#pragma once

#include <string>
#include <vector>

#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategies/tpu_strategy.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {

/// Tests of a program whose plugin for CPUs has eight devices.
class EightDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_PLUGIN();
    if (initialize_tpu_system(nullptr, {.num_cpu_devices = 8}).num_tpus_per_task() < 8) {
      GTEST_SKIP() << "this test needs 8 devices";
    }
  }
};

/// A strategy of this many replicas, of one device each.
inline TPUStrategy replicas(int count) {
  const tpu::Topology topology = initialize_tpu_system();
  return TPUStrategy(nullptr, tpu::DeviceAssignment::build(topology, {.num_replicas = count}));
}

inline c10::Device device_of_replica(const Strategy& strategy, int replica) {
  return lockstep::detail::Access::impl(strategy).devices()[replica].torch_device;
}

/// Returns what a call throws.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep::xla::test
