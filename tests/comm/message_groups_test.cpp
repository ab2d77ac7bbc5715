#include "lockstep/comm/messages/message_groups.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/worker_error.h"
#include "tests/support/child_processes.h"
#include "tests/support/fake_job.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Exchanges wait until it is aborted: the other worker does not answer.
class SilentTransport : public Transport {
 public:
  std::string_view name() const override { return "silent"; }
  int worker() const override { return 0; }
  int num_workers() const override { return 2; }
  int num_lanes() const override { return 2; }
  void exchange(int, std::span<const Outgoing>, std::span<const Incoming>, std::chrono::milliseconds) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_aborted_; });
    LOCKSTEP_THROW(CollectiveError, "[silent] aborted");
  }
  void abort(const std::string&) override {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }
  void peer_left(int worker) override { last_left = worker; }

  std::atomic<int> last_left = -1;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_aborted_ = false;
};

// Worker 0 of two, with two ranks.
class MessageGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("LOCKSTEP_DUMP", folder_.path().c_str(), 1); }
  void TearDown() override { unsetenv("LOCKSTEP_DUMP"); }

  std::future<void> reduce_later(int local) {
    return std::async(std::launch::async, [this, local] { groups_->local()[local].all_reduce(at::ones({2}), "sum"); });
  }
  template <typename Error>
  static std::string error_of(std::future<void>& call) {
    EXPECT_EQ(call.wait_for(60s), std::future_status::ready) << "it still waits";
    try {
      call.get();
    } catch (const Error& error) {
      return error.what_without_backtrace();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  tests::TestFolder folder_;
  std::shared_ptr<tests::FakeJob> job_ = std::make_shared<tests::FakeJob>(folder_.path(), 0, 2);
  std::shared_ptr<SilentTransport> transport_ = std::make_shared<SilentTransport>();
  std::shared_ptr<WorkerGroups> groups_ = make_message_groups(job_, transport_, "group", 2, 600s);
};

TEST_F(MessageGroupsTest, AFailedJobEndsAWaitForALocalRank) {
  groups_->begin_run(1);
  auto waiting = reduce_later(0);
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  job_->break_off(1, "worker 1 (fake) died");
  EXPECT_THAT(error_of<WorkerError>(waiting), HasSubstr("worker 1 (fake) died while rank 0 was in all_reduce"));
}

TEST_F(MessageGroupsTest, AFailureOfThisWorkerEndsAWaitForALocalRank) {
  groups_->begin_run(1);
  auto waiting = reduce_later(0);
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  job_->fail("no data");
  EXPECT_THAT(error_of<CollectiveError>(waiting), HasSubstr("no data"));
}

TEST_F(MessageGroupsTest, AllLocalRanksNameTheWorker) {
  groups_->begin_run(1);
  auto first = reduce_later(0);
  auto second = reduce_later(1);
  EXPECT_EQ(first.wait_for(20ms), std::future_status::timeout);
  job_->break_off(1, "worker 1 (fake) died");
  EXPECT_THAT(error_of<WorkerError>(first), HasSubstr("worker 1 (fake) died"));
  EXPECT_THAT(error_of<WorkerError>(second), HasSubstr("worker 1 (fake) died"));
}

TEST_F(MessageGroupsTest, ALaterRunOfAFailedJobFailsAtOnce) {
  groups_->begin_run(1);
  job_->break_off(1, "worker 1 (fake) died");
  groups_->begin_run(2);
  auto call = reduce_later(0);
  EXPECT_THAT(error_of<WorkerError>(call), HasSubstr("worker 1 (fake) died"));
}

}  // namespace
}  // namespace lockstep::comm
