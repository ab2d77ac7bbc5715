// Distributed input of XLA devices is read and uploaded ahead of the step.

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/xla/eight_devices.h"

namespace lockstep::xla::test {
namespace {

class XlaPrefetchTest : public EightDevicesTest {
 protected:
  /// A dataset of batches of one row for each replica, and the number of rows that were read.
  auto rows() {
    return data::range(20).map([this](int64_t i) {
      reader_ = std::this_thread::get_id();
      ++num_read_;
      return torch::full({2}, double(i), torch::kDouble);
    });
  }

  /// Waits until so many rows were read; false if they are not after some seconds.
  bool reaches(int rows) const {
    for (int i = 0; i < 500 && num_read_ < rows; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return num_read_ >= rows;
  }

  std::atomic<int> num_read_{0};
  /// The thread that read last.
  std::atomic<std::thread::id> reader_;
};

TEST_F(XlaPrefetchTest, OneStepOfEachReplicaIsReadAhead) {
  const TPUStrategy strategy = replicas(2);
  auto iterator = strategy.distribute_dataset(rows().batch(2)).iterator();
  for (int step = 0; step < 10; ++step) {
    const auto batch = strategy.local_results(iterator.get_next());
    for (int replica = 0; replica < 2; ++replica) {
      EXPECT_EQ(batch[replica].device(), device_of_replica(strategy, replica));
      EXPECT_TRUE(torch::equal(batch[replica].cpu(), torch::full({1, 2}, 2.0 * step + replica, torch::kDouble)));
    }
    EXPECT_TRUE(reaches(std::min(20, 2 * (step + 2)))) << "after step " << step << " read " << num_read_;
  }
  EXPECT_NE(reader_.load(), std::this_thread::get_id());
}

TEST_F(XlaPrefetchTest, NothingIsReadAheadWithoutABuffer) {
  const TPUStrategy strategy = replicas(2);
  auto iterator = strategy.distribute_dataset(rows().batch(2), {.per_replica_buffer_size = 0}).iterator();
  for (int step = 0; step < 10; ++step) {
    iterator.get_next();
    EXPECT_EQ(reader_.load(), std::this_thread::get_id());
  }
}

TEST_F(XlaPrefetchTest, StepsMayRunWhileOthersAreUploaded) {
  const TPUStrategy strategy = replicas(2);
  double total = 0;
  for (const auto& batch : strategy.distribute_dataset(rows().batch(2), {.per_replica_buffer_size = 4})) {
    const auto sums = strategy.run([](const torch::Tensor& x) { return (x * 2).sum(); }, batch);
    total += strategy.reduce("sum", sums).item<double>();
  }
  EXPECT_EQ(total, 4.0 * 190);
}

}  // namespace
}  // namespace lockstep::xla::test
