#include "lockstep/base/bounded_queue.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

TEST(BoundedQueueTest, GivesValuesInOrderAndThenTheEnd) {
  BoundedQueue<int> queue(2);
  std::thread maker([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(queue.push(i));
    queue.finish();
  });
  int value = -1;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(queue.pop(value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(queue.pop(value));
  EXPECT_FALSE(queue.pop(value));
  maker.join();
}

TEST(BoundedQueueTest, ThrowsExceptionsAtTheirPlaceAndGoesOn) {
  BoundedQueue<int> queue(3);
  queue.push(1);
  queue.push_exception(std::make_exception_ptr(std::runtime_error("second")));
  queue.push(3);
  queue.finish();
  int value = 0;
  EXPECT_TRUE(queue.pop(value));
  EXPECT_THROW(queue.pop(value), std::runtime_error);
  EXPECT_TRUE(queue.pop(value));
  EXPECT_EQ(value, 3);
  EXPECT_FALSE(queue.pop(value));
}

TEST(BoundedQueueTest, CloseWakesAMakerThatWaitsForAPlace) {
  BoundedQueue<int> queue(1);
  std::atomic<bool> refused = false;
  std::thread maker([&] {
    while (queue.push(0)) {
    }
    refused = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  queue.close();
  maker.join();
  EXPECT_TRUE(refused);
}

TEST(BoundedQueueTest, CloseWakesAReaderThatWaitsForAValueAndDropsWhatIsLeft) {
  BoundedQueue<int> queue(1);
  std::thread reader([&] {
    int value = 0;
    EXPECT_FALSE(queue.pop(value));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  queue.close();
  reader.join();
  BoundedQueue<int> full(1);
  full.push(1);
  full.close();
  int value = 0;
  EXPECT_FALSE(full.pop(value));
}

TEST(BoundedQueueTest, ServesSeveralMakersAndReadersOfValuesThatOnlyMove) {
  BoundedQueue<std::unique_ptr<int>> queue(4);
  std::atomic<int> sum = 0;
  std::vector<std::thread> readers, makers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      for (std::unique_ptr<int> value; queue.pop(value);) sum += *value;
    });
  }
  for (int m = 0; m < 3; ++m) {
    makers.emplace_back([&] {
      for (int i = 1; i <= 100; ++i) queue.push(std::make_unique<int>(i));
    });
  }
  for (auto& maker : makers) maker.join();
  queue.finish();
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(sum, 3 * 5050);
}

TEST(BoundedQueueTest, HasRoomForOneAtLeast) {
  BoundedQueue<int> queue(0);
  EXPECT_EQ(queue.capacity(), 1U);
  EXPECT_TRUE(queue.push(1));
  EXPECT_EQ(queue.size(), 1U);
}

}  // namespace
}  // namespace lockstep::detail
