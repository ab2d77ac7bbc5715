#include "lockstep/comm/shared/shared_rendezvous.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/child_processes.h"
#include "tests/support/fake_job.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kPatience = 60s;
const CollectiveCall kCall{.operation = "all_reduce"};

// A member that tells of another one's leaving when it is asked, after it has done something.
class LeavingJob : public tests::FakeJob {
 public:
  using FakeJob::FakeJob;
  bool has_left(int worker) const override {
    if (worker == this->worker() || !before_leaving) return false;
    before_leaving();
    return true;
  }
  std::function<void()> before_leaving;
};

// Two workers with one rank each, both in this process: each maps the arena of the process for itself.
class SharedRendezvousTest : public ::testing::Test {
 protected:
  struct Worker {
    std::shared_ptr<LeavingJob> job;
    std::shared_ptr<SharedMemory> memory;
    std::unique_ptr<SharedRendezvous> rendezvous;
  };

  void SetUp() override {
    std::string why_not;
    if (SharedArena::of_process(why_not) == nullptr) GTEST_SKIP() << why_not;
    setenv("LOCKSTEP_DUMP", folder_.path().c_str(), 1);
    connect(workers_, folder_);
  }

  void TearDown() override { unsetenv("LOCKSTEP_DUMP"); }

  static void connect(std::vector<Worker>& workers, const tests::TestFolder& folder) {
    workers.resize(2);
    on_both([&](int index) {
      Worker& worker = workers[static_cast<size_t>(index)];
      std::string why_not;
      worker.job = std::make_shared<LeavingJob>(folder.path(), index, 2);
      worker.memory = SharedMemory::connect(worker.job, "memory", kPatience, why_not);
      ASSERT_NE(worker.memory, nullptr) << why_not;
      worker.rendezvous = std::make_unique<SharedRendezvous>(worker.memory, "group", 1, kPatience);
    });
  }

  template <typename Body>
  static void on_both(Body body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

  // Fails the job of the other worker where this one's has failed, as a coordinator does.
  void tell_other(int worker) {
    if (const JobFailure* failure = workers_[static_cast<size_t>(worker)].job->failure())
      workers_[static_cast<size_t>(1 - worker)].job->break_off(worker, failure->reason);
  }

  SharedRendezvous& rendezvous(int worker) { return *workers_[static_cast<size_t>(worker)].rendezvous; }

  tests::TestFolder folder_;
  std::vector<Worker> workers_;
};

TEST_F(SharedRendezvousTest, RanksMeet) {
  on_both([&](int worker) {
    for (int i = 0; i < 100; ++i) {
      SharedCollectiveScope scope(rendezvous(worker), 0, kCall, {});
      scope.run([] {});
    }
  });
}

// Others write into the memory of a rank while it is in a collective, so it must not leave before they are done.
TEST_F(SharedRendezvousTest, ARankThatFailsWaitsForThoseThatWrite) {
  std::atomic<bool> is_written = false;
  on_both([&](int worker) {
    try {
      SharedCollectiveScope scope(rendezvous(worker), 0, kCall, {});
      scope.run([&] {
        if (worker == 0) throw std::runtime_error("no memory");
        std::this_thread::sleep_for(100ms);
        is_written = true;
      });
      ADD_FAILURE() << "worker " << worker << " has not seen the failure";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(worker, 1) << error.what_without_backtrace();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no memory");
      EXPECT_TRUE(is_written) << "the other rank still writes";
      tell_other(0);
    }
  });
  EXPECT_THAT(workers_[0].job->failure()->reason, HasSubstr("rank 0 failed inside a collective: no memory"));
}

TEST_F(SharedRendezvousTest, ALateRankDoesNotMeetOneThatGaveUp) {
  EXPECT_THROW(rendezvous(0).arrive(0, kCall, 20ms), CollectiveError);
  tell_other(0);
  EXPECT_THROW(rendezvous(1).arrive(0, kCall, {}), CollectiveError);
}

// A worker that is done may leave while others wait for the rest.
TEST_F(SharedRendezvousTest, LeavingAfterTheLastCollectiveIsNoError) {
  on_both([&](int worker) { rendezvous(worker).arrive(0, kCall, {}); });
  std::atomic<bool> is_done = false;
  workers_[0].job->before_leaving = [&] {
    if (!is_done.exchange(true)) rendezvous(1).depart(0);
  };
  EXPECT_NO_THROW(rendezvous(0).depart(0));
}

TEST_F(SharedRendezvousTest, LeavingBeforeACollectiveIsAnError) {
  workers_[0].job->before_leaving = [] {};
  EXPECT_THROW(rendezvous(0).arrive(0, kCall, {}), CollectiveError);
}

// A stopped worker that wakes up goes on writing where it was.
TEST_F(SharedRendezvousTest, AMemberOfAFailedJobDoesNotReachTheNext) {
  SharedArena& arena = workers_[0].memory->own();
  auto* const data = static_cast<char*>(arena.allocate(64));
  std::strcpy(data, "values");
  const uint64_t offset = arena.offset_of(data);
  char* const of_peer = workers_[1].memory->at(0, offset);
  ASSERT_STREQ(of_peer, "values");
  for (const Worker& worker : workers_) worker.job->break_off(1, "worker 1 (fake) was silent");

  const tests::TestFolder folder;
  std::vector<Worker> next;
  connect(next, folder);
  EXPECT_STREQ(data, "values");
  std::strcpy(of_peer, "other");
  EXPECT_STREQ(data, "values");
  std::strcpy(next[1].memory->at(0, offset), "shared");
  EXPECT_STREQ(data, "shared");
  arena.free(data);
}

}  // namespace
}  // namespace lockstep::comm
