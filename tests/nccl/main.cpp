#include <cstdlib>

#include <gtest/gtest.h>

// The environment is read when the engine is opened.
int main(int argc, char** argv) {
  ::setenv("LOCKSTEP_NCCL_STANDIN", "1", 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
