#include <cstdlib>

#include <gtest/gtest.h>

// The environment is read when the engine is opened and when CUDA starts. Ranks that wait for each other on one card
// need queues of their own.
int main(int argc, char** argv) {
  ::setenv("LOCKSTEP_NCCL_STANDIN", "1", 0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
