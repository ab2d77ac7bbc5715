// When `lockstep run` starts workers again, and where.

#include "tools/run/restart_policy.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run/elastic_places.h"

namespace lockstep::tools {
namespace {

using namespace std::chrono_literals;

TEST(RestartPolicyTest, FailuresUseUpRestartsAndWaitLonger) {
  RestartPolicy policy(8, 5);
  EXPECT_EQ(policy.next(false), 0ms);
  EXPECT_EQ(policy.description(), "restart 1 of 8");
  EXPECT_EQ(policy.next(false), 500ms);
  EXPECT_EQ(policy.next(false), 1s);
  EXPECT_EQ(policy.next(false), 2s);
  policy.note_step(7);
  EXPECT_EQ(policy.next(false), 0ms);
  policy.note_step(7);
  EXPECT_EQ(policy.next(false), 500ms);
  policy.note_step(6);
  EXPECT_EQ(policy.next(false), 1s);
  EXPECT_EQ(policy.next(false), 2s);
  EXPECT_EQ(policy.next(false), std::nullopt);
  EXPECT_EQ(policy.refusal(), "no restarts are left");
  EXPECT_EQ(policy.restarts(), 8);
  EXPECT_EQ(policy.step(), 7);
}

TEST(RestartPolicyTest, WaitsAreLimited) {
  RestartPolicy policy(100, 100);
  auto wait = 0ms;
  for (int i = 0; i < 50; ++i) wait = policy.next(false).value();
  EXPECT_EQ(wait, 30s);
}

TEST(RestartPolicyTest, RestartsWithoutProgressAreLimitedWhereStepsAreReported) {
  RestartPolicy silent(10, 2);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(silent.next(false));
  RestartPolicy policy(10, 2);
  policy.note_step(3);
  EXPECT_TRUE(policy.next(false));
  EXPECT_TRUE(policy.next(false));
  EXPECT_FALSE(policy.next(false));
  EXPECT_EQ(policy.refusal(), "2 restarts in a row have finished no step");
}

TEST(RestartPolicyTest, PreemptionsUseUpNoRestartsButMustMakeProgress) {
  RestartPolicy none(0, 5);
  EXPECT_FALSE(none.next(true));
  EXPECT_EQ(none.refusal(), "");
  RestartPolicy policy(1, 2);
  for (int64_t step = 0; step < 20; ++step) {
    policy.note_step(step);
    EXPECT_EQ(policy.next(true), 0ms);
    EXPECT_EQ(policy.description(), "a restart after a preemption");
  }
  EXPECT_TRUE(policy.next(false));
  EXPECT_FALSE(policy.next(true));
}

TEST(RestartPolicyTest, WorkersThatAreLostTogetherAreOneRound) {
  RestartPolicy policy(100, 2);
  policy.note_step(3);
  const int first = policy.round();
  for (int worker = 0; worker < 6; ++worker) EXPECT_EQ(policy.next(false, first), 0ms);
  EXPECT_EQ(policy.description(), "restart 6 of 100");
  // One replacement after the other fails.
  const int second = policy.round();
  EXPECT_EQ(policy.next(false, second), 500ms);
  EXPECT_EQ(policy.next(true, second), 500ms);
  EXPECT_EQ(policy.next(false, first), 500ms);
  EXPECT_FALSE(policy.next(false, policy.round()));
  EXPECT_EQ(policy.refusal(), "2 restarts in a row have finished no step");
  // After a step everything begins again, also for old workers.
  policy.note_step(4);
  EXPECT_EQ(policy.next(false, first), 0ms);
  EXPECT_EQ(policy.next(false, policy.round()), 500ms);
  EXPECT_FALSE(policy.next(false, policy.round()));
}

TEST(ElasticPlacesTest, NumbersOfLostLaunchersAreUsedAgain) {
  ElasticPlaces places;
  places.offer(0, 1);
  for (uint64_t launcher = 1; launcher < 5; ++launcher) {
    places.offer(launcher, 2);
    EXPECT_EQ(places.num_open(launcher), 2);
    EXPECT_EQ(places.all().size(), 3u);
    EXPECT_EQ(places.num_possible(), 3);
    places.offer(launcher, 0);
    EXPECT_EQ(places.num_open(launcher), 0);
    places.forget(launcher);
    EXPECT_EQ(places.num_possible(), 1);
  }
  EXPECT_EQ(places.num_open(0), 1);
}

TEST(ElasticPlacesTest, PlacesAreFilledScheduledAndClosed) {
  ElasticPlaces places;
  const ElasticPlace::Time now = ElasticPlace::Time() + 1h;
  places.offer(0, 2);
  for (const uint64_t worker : {5, 6}) places.next_to_start(3, now)->worker = worker;
  EXPECT_EQ(places.next_to_start(3, now), nullptr);
  places.offer(7, 2);  // another launcher
  EXPECT_EQ(places.num_possible(), 4);
  ElasticPlace* const third = places.next_to_start(3, now);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->launcher, 7u);
  EXPECT_EQ(third->name(), "worker 2");
  third->worker = 8;
  EXPECT_EQ(places.next_to_start(3, now), nullptr) << "the most run";

  // One ends and waits for its restart: its place counts.
  ElasticPlace* const first = places.find_worker(5);
  first->worker.reset();
  first->start_at = now + 10s;
  EXPECT_EQ(places.next_to_start(3, now), nullptr);
  EXPECT_EQ(places.next_start(now + 1h), now + 10s);
  EXPECT_EQ(places.next_to_start(3, now + 10s), first);
  // It is not restarted: the free place of the other launcher takes over.
  first->start_at.reset();
  first->is_closed = true;
  EXPECT_EQ(places.next_to_start(3, now)->index, 3);

  EXPECT_THAT(places.workers_of(7), ::testing::ElementsAre(8));
  places.find_worker(8)->worker.reset();
  places.offer(7, 0);
  EXPECT_EQ(places.num_possible(), 1);
  EXPECT_EQ(places.next_to_start(3, now), nullptr);
}

}  // namespace
}  // namespace lockstep::tools
