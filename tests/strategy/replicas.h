#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/mirrored.h"

namespace lockstep::tests {

/// Sets up five logical CPUs, for strategies of up to five replicas.
class ReplicasTest : public ::testing::Test {
 protected:
  static constexpr int kMaxReplicas = 5;

  void SetUp() override { set_logical_devices("CPU", kMaxReplicas); }
  void TearDown() override {
    EXPECT_FALSE(has_strategy()) << "every test leaves what it entered";
    reset_logical_devices();
  }
};

/// Makes a MirroredStrategy of `replicas` logical CPUs.
inline MirroredStrategy mirrored(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  return MirroredStrategy(devices);
}

/// Returns the index of the calling replica.
inline int replica_id() { return get_replica_context().replica_id_in_sync_group(); }

}  // namespace lockstep::tests
