#include "lockstep/comm/diagnostics/wait_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Reports = std::vector<std::optional<WaitReport>>;

std::vector<std::string> names(size_t count) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.push_back("worker " + std::to_string(i));
  return all;
}

std::string mutual_wait(const Reports& reports) { return find_mutual_wait(reports, names(reports.size())); }

RankReport waits(uint64_t call, std::string text) { return {.call = call, .waits = true, .text = std::move(text)}; }
RankReport idle(uint64_t call) { return {.call = call}; }

/// A worker with one replica: its ranks in the group of workers and in the group of replicas.
WaitReport worker(RankReport in_workers, RankReport in_replicas, uint64_t run = 1) {
  return {.all_wait = true,
          .groups = {{.name = "workers", .ranks = {std::move(in_workers)}},
                     {.name = "replicas", .run = run, .ranks = {std::move(in_replicas)}}}};
}

TEST(WaitReportTest, SurvivesItsText) {
  WaitReport report = worker(waits(3, "reduce(SUM) at a.cpp:1"), idle(7));
  report.groups[1].ranks[0].left_run = 5;
  report.groups[1].is_local = true;
  EXPECT_EQ(decode_wait_report(encode(report)), report);
  report.pace = Pace{.samples = 40, .busy = 31, .runs = 12};
  EXPECT_EQ(decode_wait_report(encode(report)), report);
  EXPECT_EQ(decode_wait_report("what is this"), std::nullopt);
  EXPECT_EQ(decode_wait_report(encode(report) + "x"), std::nullopt);
}

TEST(WaitReportTest, NamesBothCalls) {
  const Reports reports{worker(waits(3, "reduce(SUM) at a.cpp:1"), idle(7)),
                        worker(idle(2), waits(8, "optimizer step() at b.cpp:2"))};
  EXPECT_THAT(mutual_wait(reports),
              AllOf(HasSubstr("rank 0 of worker 0 waits in reduce(SUM) at a.cpp:1 (call 3, group workers)"),
                    HasSubstr("rank 1 of worker 1 waits in optimizer step() at b.cpp:2 (call 8, group replicas)")));
}

TEST(WaitReportTest, SlowWorkersAreNoMismatch) {
  const WaitReport waiting = worker(idle(2), waits(8, "step"));
  EXPECT_EQ(mutual_wait({waiting, std::nullopt}), "") << "a worker that has not reported";
  EXPECT_EQ(mutual_wait({waiting, waiting, std::nullopt}), "") << "both wait for the third";
  EXPECT_EQ(mutual_wait({waiting, waiting}), "") << "all have arrived";
  WaitReport computes = worker(idle(2), idle(7));
  computes.all_wait = false;
  EXPECT_EQ(mutual_wait({waiting, computes}), "");
}

TEST(WaitReportTest, TwoOfThreeWorkersCannotGoOn) {
  const Reports reports{worker(waits(3, "reduce"), idle(7)), std::nullopt, worker(idle(2), waits(8, "step"))};
  EXPECT_THAT(mutual_wait(reports),
              AllOf(HasSubstr("of worker 0 waits in reduce"), HasSubstr("of worker 2 waits in step")));
}

TEST(WaitReportTest, AnOldReportIsNoMismatch) {
  // Worker 1 has arrived in the call that worker 0 waited for when it reported, and waits for worker 0's next one.
  const Reports reports{worker(waits(3, "reduce"), idle(7)), worker(idle(3), waits(8, "step"))};
  EXPECT_EQ(mutual_wait(reports), "");
}

TEST(WaitReportTest, AReportOfADestroyedGroupIsNoMismatch) {
  WaitReport of_last_strategy = worker(waits(3, "reduce"), idle(7));
  for (GroupReport& group : of_last_strategy.groups) group.name = "last strategy's " + group.name;
  EXPECT_EQ(mutual_wait({worker(waits(1, "reduce"), idle(0)), of_last_strategy}), "");
}

TEST(WaitReportTest, ReplicasOfOneWorkerWaitForEachOther) {
  const WaitReport report{
      .all_wait = true,
      .groups = {{.name = "replicas", .run = 1, .ranks = {waits(4, "all_reduce() at a.cpp:1"), idle(3)}},
                 {.name = "gradients", .run = 1, .ranks = {idle(5), waits(6, "minimize() at b.cpp:2")}}}};
  EXPECT_THAT(mutual_wait({report, std::nullopt}),
              AllOf(HasSubstr("rank 0 of worker 0 waits in all_reduce() at a.cpp:1"),
                    HasSubstr("rank 1 of worker 0 waits in minimize() at b.cpp:2")));
}

TEST(WaitReportTest, ACollectiveAtWorkMayGoOn) {
  // The gradients of replica 1 are being sent: its thread may then join replica 0.
  const WaitReport one{.all_wait = true,
                       .groups = {{.name = "replicas", .run = 1, .ranks = {waits(4, "all_reduce"), idle(3)}},
                                  {.name = "gradients", .run = 1, .ranks = {idle(6), waits(6, "minimize")}}}};
  EXPECT_EQ(mutual_wait({one, one}), "");
}

TEST(WaitReportTest, ARankThatHasEndedTheRun) {
  WaitReport ended = worker(idle(2), idle(7), 0);
  ended.all_wait = false;
  const Reports reports{worker(idle(2), waits(8, "all_reduce() at a.cpp:1"), 5), ended};
  const auto found = [&](uint64_t left_run, uint64_t call) {
    Reports changed = reports;
    changed[1]->groups[1].ranks[0].left_run = left_run;
    changed[1]->groups[1].ranks[0].call = call;
    return find_ended_run(changed, 1, names(2));
  };
  EXPECT_EQ(found(4, 7), "") << "it is still in the run, or has not begun it";
  EXPECT_EQ(found(5, 8), "") << "it has made the call";
  EXPECT_THAT(found(5, 7), AllOf(HasSubstr("rank 1 of worker 1 has ended run 5"),
                                 HasSubstr("rank 0 of worker 0 waits in all_reduce() at a.cpp:1")));
  Reports elsewhere = reports;
  elsewhere[1] = worker(waits(3, "reduce() at b.cpp:2"), {.call = 7, .left_run = 5}, 0);
  EXPECT_THAT(find_ended_run(elsewhere, 1, names(2)),
              AllOf(HasSubstr("rank 0 of worker 0 waits in all_reduce() at a.cpp:1"),
                    HasSubstr("rank 1 of worker 1 waits in reduce() at b.cpp:2")));
}

}  // namespace
}  // namespace lockstep::comm
