#include <atomic>
#include <numeric>
#include <sys/socket.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/clock_offset.h"
#include "lockstep/comm/job/join.h"
#include "tests/comm/job_members.h"

namespace lockstep::comm {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class JobSizeTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, JobSizeTest, ::testing::Range(1, 6));

TEST_P(JobSizeTest, JoinsAndGathers) {
  const auto jobs = join_all(options_for(GetParam()));
  std::vector<std::future<std::vector<std::string>>> gathered;
  std::vector<std::string> expected;
  for (const auto& job : jobs) {
    EXPECT_EQ(job->num_workers(), GetParam());
    EXPECT_EQ(job->worker(), static_cast<int>(expected.size()));
    EXPECT_EQ(job->local_address(), "127.0.0.1");
    EXPECT_TRUE(job->one_machine());
    EXPECT_EQ(job->failure(), nullptr);
    expected.push_back("value " + std::to_string(job->worker()));
    gathered.push_back(std::async(
        std::launch::async, [job, value = expected.back()] { return job->all_gather("test", value, kPatience); }));
  }
  for (auto& one : gathered) EXPECT_EQ(one.get(), expected);
}

TEST(JobTest, NamesSayWhoAndWhere) {
  auto options = options_for(3);
  options.addresses[1] = "127.0.0.1:77";
  options.names = {"chief", "second", "third"};
  for (const auto& job : join_all(options)) {
    EXPECT_EQ(job->name(0), "chief (" + options.addresses[0] + ")");
    EXPECT_EQ(job->name(1), "second (127.0.0.1:77)");
    EXPECT_EQ(job->name(2), "third (127.0.0.1)");
    EXPECT_THROW(job->name(3), c10::IndexError);
  }
}

TEST(JobTest, JoinsOverIpv6) {
  auto options = options_for(2);
  options.addresses = free_addresses(2, "[::1]");
  const auto jobs = join_all(options);
  EXPECT_EQ(jobs[1]->local_address(), "::1");
}

TEST(JobTest, AnInterfaceCanBeChosen) {
  auto options = options_for(2);
  options.interface_address = "lo";
  for (const auto& job : join_all(options)) EXPECT_EQ(job->local_address(), "127.0.0.1");
}

TEST(JobTest, JoinsWithoutAToken) {
  auto options = options_for(2);
  options.token.clear();
  EXPECT_EQ(join_all(options).size(), 2U);
}

TEST(JobTest, AValueIsSeenByAllAndSetOnce) {
  const auto jobs = join_all(options_for(3));
  const std::string bytes("with \0 in it", 12);
  jobs[1]->set("key", bytes);
  for (const auto& job : jobs) EXPECT_EQ(job->get("key", kPatience), bytes);
  EXPECT_THAT(error_of<c10::ValueError>([&] { jobs[2]->set("key", "other"); }),
              HasSubstr("[Job::set] a key is set once: key=\"key\""));
  EXPECT_EQ(jobs[0]->get("key", kPatience), bytes);
}

TEST(JobTest, TheClockOfTheFirstWorkerIsMeasured) {
  const auto jobs = join_all(options_for(2));
  // One machine has one clock.
  EXPECT_EQ(clock_offset(*jobs[1]), 0);
  EXPECT_EQ(measured_clock_offset(*jobs[0]), 0);
  const int64_t measured = measured_clock_offset(*jobs[1]);
  EXPECT_NE(measured, 0);
  EXPECT_LT(std::abs(measured), 50'000'000);
  EXPECT_EQ(jobs[1]->failure(), nullptr);
}

TEST(JobTest, LargeValuesArrive) {
  const auto jobs = join_all(options_for(2));
  std::string large(5'000'000, 'x');
  std::iota(large.begin(), large.end(), 0);
  jobs[0]->set("from 0", large);
  jobs[1]->set("from 1", large);
  EXPECT_EQ(jobs[1]->get("from 0", kPatience), large);
  EXPECT_EQ(jobs[0]->get("from 1", kPatience), large);
  EXPECT_THROW(jobs[1]->set("too large", std::string(80'000'000, 'x')), c10::ValueError);
}

TEST(JobTest, GetWaitsUntilSomebodySets) {
  const auto jobs = join_all(options_for(3));
  std::vector<std::future<std::string>> waiting;
  for (const auto& job : jobs) {
    waiting.push_back(std::async(std::launch::async, [job] { return job->get("late", kPatience); }));
  }
  EXPECT_EQ(waiting[0].wait_for(50ms), std::future_status::timeout);
  jobs[2]->set("late", "now");
  for (auto& one : waiting) EXPECT_EQ(one.get(), "now");
}

TEST(JobTest, GetSaysWhoHasNotSetTheKey) {
  const auto jobs = join_all(options_for(2));
  EXPECT_THAT(error_of<CollectiveError>([&] { jobs[0]->get("shm/1", 20ms); }),
              HasSubstr("[Job::get] worker 1 (127.0.0.1) has not set the key in time: key=\"shm/1\", timeout=0 s"));
  EXPECT_THAT(error_of<CollectiveError>([&] { jobs[1]->get("other", 20ms); }), HasSubstr("nobody has set the key"));
  jobs[1]->set("shm/1", "after all");
  EXPECT_EQ(jobs[0]->get("shm/1", kPatience), "after all");
}

TEST(JobTest, ThreadsShareAMember) {
  const auto jobs = join_all(options_for(2));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = std::to_string(thread) + "/" + std::to_string(i);
        jobs[static_cast<size_t>(i) % 2]->set(key, key);
        EXPECT_EQ(jobs[static_cast<size_t>(i + 1) % 2]->get(key, kPatience), key);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(JobTest, TwoJobsDoNotMix) {
  const auto first = join_all(options_for(2));
  const auto second = join_all(options_for(2));
  first[0]->set("key", "first");
  second[0]->set("key", "second");
  EXPECT_EQ(first[1]->get("key", kPatience), "first");
  EXPECT_EQ(second[1]->get("key", kPatience), "second");
}

TEST(JobTest, AnAddressCanBeUsedAgainAtOnce) {
  const auto options = options_for(2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(join_all(options).size(), 2U);
}

TEST(JobJoinTest, WaitsForWhoComesLate) {
  const auto options = options_for(3);
  auto second = join_later(options, 1);
  std::this_thread::sleep_for(100ms);
  auto first = join_later(options, 0);
  EXPECT_EQ(first.wait_for(100ms), std::future_status::timeout);
  EXPECT_EQ(join_later(options, 2).get()->num_workers(), 3);
  EXPECT_EQ(second.get()->worker(), 1);
}

TEST(JobJoinTest, SaysWhoIsMissing) {
  auto options = options_for(3);
  options.names = {"chief", "second", "third"};
  auto second = join_later(options, 1);
  options.join_timeout = 500ms;
  const std::string error = error_of<CollectiveError>([&] { join_job(options); });
  EXPECT_THAT(error, HasSubstr("[join_job] not all workers have joined within 0.5 s: chief ("));
  EXPECT_THAT(error, HasSubstr(" and second (127.0.0.1) have joined, third has not"));
  EXPECT_THAT(error, HasSubstr(options.addresses[0]));
  // The others need not wait for their own deadline.
  EXPECT_THAT(error_of<CollectiveError>([&] { second.get(); }), HasSubstr("third has not"));
}

TEST(JobJoinTest, AMemberSaysWhoIsMissing) {
  auto options = options_for(3);
  auto first = join_later(options, 0);
  options.join_timeout = 500ms;
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(as_worker(options, 2)); }), HasSubstr("worker 1 has not"));
  // Its number is free again.
  options.join_timeout = kPatience;
  auto second = join_later(options, 1);
  EXPECT_EQ(join_later(options, 2).get()->worker(), 2);
  EXPECT_EQ(first.get()->worker(), 0);
  EXPECT_EQ(second.get()->worker(), 1);
}

TEST(JobJoinTest, SaysWhatWasTried) {
  auto options = as_worker(options_for(2), 1);
  options.join_timeout = 200ms;
  const std::string refused = error_of<CollectiveError>([&] { join_job(options); });
  EXPECT_THAT(refused, HasSubstr("worker 1 cannot reach the coordinator: address=" + options.addresses[0]));
  EXPECT_THAT(refused, HasSubstr("last error: connecting to " + options.addresses[0] + ": Connection refused"));
  options.addresses[0] = "no-such-host.invalid:8888";
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(options); }),
              HasSubstr("the name no-such-host.invalid cannot be resolved"));
}

TEST(JobJoinTest, SaysWhyItCannotListen) {
  const auto options = options_for(2);
  const auto jobs = join_all(options);
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(options); }), HasSubstr("Address already in use"));
  auto elsewhere = options_for(2);
  elsewhere.addresses[0] = "203.0.113.7:8888";
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(elsewhere); }),
              HasSubstr("[join_job] worker 0 must run where its address is: listening at 203.0.113.7:8888"));
}

TEST(JobJoinTest, RejectsWrongOptions) {
  const auto error = [](JobOptions options) { return error_of<c10::ValueError>([&] { join_job(options); }); };
  EXPECT_THAT(error({}), HasSubstr("at least one worker"));
  EXPECT_THAT(error({.addresses = {"host"}}), HasSubstr("an address is host:port: address=\"host\""));
  EXPECT_THAT(error({.addresses = {"host:0"}}), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(error({.addresses = {"host:70000"}}), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(error({.addresses = {"::1:8888"}}), HasSubstr("[address]:port"));
  EXPECT_THAT(error({.addresses = {"a:1", "b:1"}, .worker = 2}), HasSubstr("worker=2, num_workers=2"));
  EXPECT_THAT(error({.addresses = {"a:1", "b:1"}, .names = {"one"}}), HasSubstr("names=1"));
  EXPECT_THAT(error({.addresses = {"localhost:1", "10.0.0.2:1"}}),
              HasSubstr("a loopback address cannot be reached from other hosts: addresses[0]=\"localhost:1\""));
  EXPECT_THAT(error({.addresses = {"a:1"}, .interface_address = "eth77"}), HasSubstr("known are lo 127.0.0.1"));
  EXPECT_THAT(error({.addresses = {"a:1"}, .heartbeat_interval = 2s, .heartbeat_timeout = 1s}),
              HasSubstr("heartbeat_timeout=1 s, heartbeat_interval=2 s"));
}

TEST(JobJoinTest, RejectsATakenNumber) {
  const auto options = options_for(3);
  auto first = join_later(options, 0);
  auto second = join_later(options, 1);
  auto again = join_later(options, 1);
  const auto is_ready = [](auto& future) { return future.wait_for(0s) == std::future_status::ready; };
  ASSERT_TRUE(eventually([&] { return is_ready(second) || is_ready(again); }));
  auto& rejected = is_ready(second) ? second : again;
  EXPECT_THAT(error_of<CollectiveError>([&] { rejected.get(); }),
              HasSubstr("worker 1 has already joined from 127.0.0.1; give each process a number of its own"));
  EXPECT_EQ(join_later(options, 2).get()->worker(), 2);
  EXPECT_EQ((&rejected == &second ? again : second).get()->worker(), 1);
}

TEST(JobJoinTest, RejectsAnotherNumberOfWorkers) {
  const auto options = options_for(3);
  auto first = join_later(options, 0);
  auto other = as_worker(options, 1);
  other.addresses.pop_back();
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(other); }),
              HasSubstr("it expects 2 workers, worker 0 expects 3"));
  auto second = join_later(options, 1);
  EXPECT_EQ(join_later(options, 2).get()->num_workers(), 3);
}

TEST(JobTest, TheValuesOfAJobAreLimited) {
  auto options = options_for(1);
  options.values_limit = 100'000;
  const auto job = join_job(options);
  const auto fill = [&] {
    for (int i = 0; i < 8; ++i) job->set("large/" + std::to_string(i), std::string(30'000, 'x'));
  };
  EXPECT_THAT(error_of<c10::ValueError>(fill),
              HasSubstr("[Job::set] all values of a job take at most 100000 bytes: key=\"large/3\""));
  job->set("small", "value");
  EXPECT_EQ(job->get("small", kPatience), "value");
}

TEST(JobTest, DroppedValuesTakeNoMemory) {
  auto options = options_for(2);
  options.values_limit = 100'000;
  const auto jobs = join_all(options);
  for (int i = 0; i < 40; ++i) {
    const std::string value(30'000, static_cast<char>('a' + i % 26));
    jobs[i % 2]->set("large", value);
    EXPECT_EQ(jobs[1]->get("large", kPatience), value);
    EXPECT_EQ(jobs[0]->get("large", kPatience), value);
    jobs[i % 2]->drop("large");
    jobs[i % 2]->drop("nothing");
    jobs[i % 2]->set("done/" + std::to_string(i), "");
    jobs[1 - i % 2]->get("done/" + std::to_string(i), kPatience);
  }
  EXPECT_THAT(error_of<CollectiveError>([&] { jobs[1]->get("large", 20ms); }), HasSubstr("nobody has set the key"));
}

TEST(ChannelTest, DropsWhatIsNotRead) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  job::Channel channel{job::Socket(ends[0])};
  const job::Socket reader(ends[1]);
  channel.limit_unsent(1 << 20);
  const std::string content(1 << 16, 'x');
  for (int i = 0; i < 100; ++i) channel.send(content);
  EXPECT_TRUE(channel.is_overfull());
  EXPECT_GT(channel.unsent_bytes(), size_t{1} << 19);
  EXPECT_LE(channel.unsent_bytes(), size_t{1} << 20);
}

}  // namespace
}  // namespace lockstep::comm
