#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/report/report_page.h"
#include "tools/report/run_facts.h"
#include "tools/runs/run_finder.h"

namespace lockstep::tools::reports {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// A folder of a run that tests write files into.
class ReportFactsTest : public ::testing::Test {
 protected:
  ReportFactsTest() : folder_(fs::temp_directory_path() / ("lockstep_report_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ReportFactsTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  /// An interval of ten steps; replica r of a worker computes for `seconds[r]`.
  static std::string interval(int step, const std::vector<double>& seconds) {
    Json replicas = Json::array();
    for (const double own : seconds) {
      replicas.push_back({{"replica", replicas.size()}, {"device", "CPU:0"}, {"forward", own}, {"waiting", 0.5}});
    }
    return Json{{"step", step},       {"epoch", 0},
                {"time", 100 + step}, {"seconds", 10.0},
                {"steps", 10},        {"examples", 320},
                {"loss", 1.5},        {"workers", {{{"worker", 0}, {"host", "alpha"}, {"replicas", replicas}}}}}
               .dump() +
           "\n";
  }

  fs::path folder_;
};

TEST_F(ReportFactsTest, TheTimeOfAStepIsDivided) {
  write("steps.jsonl", interval(10, {2, 4}) + interval(20, {2, 4}));
  const RunData run = read_run(folder_);
  const RunFacts facts = facts_of(run);
  EXPECT_DOUBLE_EQ(facts.step_seconds.value(), 1);
  EXPECT_DOUBLE_EQ(facts.examples_per_second.value(), 32);
  EXPECT_DOUBLE_EQ((*facts.parts)[1], 0.3);   // computes
  EXPECT_DOUBLE_EQ((*facts.parts)[4], 0.05);  // waits
  EXPECT_DOUBLE_EQ((*facts.parts)[7], 0.65);  // the rest
  EXPECT_EQ(facts.steps, 20);
  EXPECT_DOUBLE_EQ(facts.seconds, 20);
}

TEST_F(ReportFactsTest, TheSlowestReplicaIsNamed) {
  write("steps.jsonl", interval(10, {2, 2, 2.6, 2}) + interval(20, {2, 2, 2.6, 2}) + interval(30, {2, 2, 2.6, 2}));
  const RunFacts facts = facts_of(read_run(folder_));
  EXPECT_TRUE(facts.slowest->is_straggler);
  EXPECT_EQ(facts.slowest->replica, 2);
  EXPECT_EQ(facts.slowest->phase, "forward");
  EXPECT_THAT(facts.slowest_words, HasSubstr("Slowest: replica 2 (alpha CPU:0). Its own work takes 260 ms per step, "
                                             "30 % more than the median (200 ms), mostly in forward (60 ms more)"));
}

TEST_F(ReportFactsTest, EqualReplicasAreNotCalledSlow) {
  write("steps.jsonl", interval(10, {2, 2.04}));
  EXPECT_FALSE(facts_of(read_run(folder_)).slowest->is_straggler);
  write("steps.jsonl", interval(10, {2, 2.2}) + interval(20, {2, 2.2}) + interval(30, {2, 2.2}));
  EXPECT_THAT(facts_of(read_run(folder_)).slowest_words,
              HasSubstr("10 % more than that of the other (200 ms), mostly in forward (20 ms more)"));
  write("steps.jsonl", interval(10, {2}));
  EXPECT_EQ(facts_of(read_run(folder_)).slowest_words, "One replica: there is nothing to compare.");
}

TEST_F(ReportFactsTest, NoiseIsNotCalledSlow) {
  // Ten percent more in all, because of two intervals of six.
  std::string lines;
  for (int index = 1; index <= 6; ++index) {
    lines += index % 3 == 0 ? interval(10 * index, {2, 2.7}) : interval(10 * index, {2, 1.95});
  }
  write("steps.jsonl", lines);
  const RunFacts facts = facts_of(read_run(folder_));
  EXPECT_TRUE(facts.slowest->is_longer);
  EXPECT_FALSE(facts.slowest->is_straggler);
  EXPECT_THAT(facts.slowest_words, HasSubstr("it is longer in 2 of 6 intervals."));
  write("steps.jsonl", interval(10, {2, 2.6}));
  EXPECT_THAT(facts_of(read_run(folder_)).slowest_words, HasSubstr("1 of 1 interval, which are too few to tell"));
}

TEST_F(ReportFactsTest, CheckpointsAreAPartWhereTheyTakeTime) {
  std::array<bool, kPartNames.size()> shown{};
  StepParts parts{1, 5, 1, 1, 1, 0.05, 0.5, 0.45};
  note_parts(parts, shown);
  EXPECT_THAT(shown, ElementsAre(true, true, true, true, true, false, true, true));
  EXPECT_THAT(merge_parts(parts, shown), ElementsAre(1, 5, 1, 1, 1, 0, 0.5, 0.5));
}

TEST_F(ReportFactsTest, TheLastKnownValueHasItsEpoch) {
  write("metrics.jsonl", R"({"epoch": 0, "step": 5, "loss": 3, "val_loss": 4})"
                         "\n"
                         R"({"epoch": 1, "step": 10, "loss": 2})"
                         "\n");
  const RunFacts facts = facts_of(read_run(folder_));
  EXPECT_DOUBLE_EQ(last_value(facts, "val_loss")->value, 4);
  EXPECT_EQ(last_value(facts, "val_loss")->epoch, 1);
  EXPECT_EQ(last_value(facts, "loss")->epoch, std::nullopt);
  EXPECT_EQ(last_value(facts, "accuracy"), nullptr);
}

TEST_F(ReportFactsTest, MemoryIsThatOfProcessesOrOfAllocators) {
  write("steps.jsonl", R"({"step": 4, "seconds": 1, "steps": 4, "workers": [{"worker": 0, "memory": 9, "replicas": [)"
                       R"({"replica": 0, "device": "CPU:0", "memory": null}]}]})"
                       "\n");
  EXPECT_DOUBLE_EQ(facts_of(read_run(folder_)).process_memory, 9);
  EXPECT_DOUBLE_EQ(facts_of(read_run(folder_)).peak_memory, 0);
  write("steps.jsonl",
        R"({"step": 4, "seconds": 1, "steps": 4, "workers": [{"worker": 0, "memory": null, "replicas": [)"
        R"({"replica": 0, "device": "GPU:0", "memory": 7}, {"replica": 1, "device": "GPU:1", "memory": 8}]}]})"
        "\n");
  EXPECT_DOUBLE_EQ(facts_of(read_run(folder_)).process_memory, 0);
  EXPECT_DOUBLE_EQ(facts_of(read_run(folder_)).peak_memory, 8);
}

TEST_F(ReportFactsTest, WithoutSecondsOfPhasesNothingIsCompared) {
  write("steps.jsonl", R"({"step": 4, "seconds": 1, "steps": 4, "workers": [{"worker": 0, "replicas": [)"
                       R"({"replica": 0, "memory": 7}, {"replica": 1, "memory": 8}]}]})"
                       "\n");
  const RunFacts facts = facts_of(read_run(folder_));
  EXPECT_FALSE(facts.parts);
  EXPECT_FALSE(facts.slowest);
  EXPECT_EQ(facts.replicas, 2);
  EXPECT_DOUBLE_EQ(facts.peak_memory, 8);
  EXPECT_THAT(facts.slowest_words, HasSubstr("were not recorded"));
}

TEST_F(ReportFactsTest, StepsThatARestoredRunRepeatsCountOnceInCurves) {
  write("steps.jsonl", interval(10, {2}) + interval(20, {2}) + interval(30, {2}) + interval(20, {4}));
  const RunData run = read_run(folder_);
  ASSERT_THAT(run.intervals, SizeIs(2));
  EXPECT_EQ(run.intervals[1].step, 20);
  EXPECT_THAT(run.problems, ::testing::Contains(HasSubstr("repeated 20 steps")));
}

TEST_F(ReportFactsTest, TheLineThatARunningRunWritesIsNoDamage) {
  write("steps.jsonl", interval(10, {2}) + R"({"step": 2)");
  write("metrics.jsonl", "");
  write("run.json", R"({"format": 1, "state": "running"})");
  EXPECT_THAT(read_run(folder_).problems, IsEmpty());
  write("run.json", R"({"format": 1, "state": "finished"})");
  EXPECT_THAT(read_run(folder_).problems,
              ElementsAre(HasSubstr("steps.jsonl: 1 of 2 lines cannot be used (line 2: it is cut")));
}

TEST_F(ReportFactsTest, ARunThatSaysNothingForLongMayHaveBeenKilled) {
  write("steps.jsonl", interval(10, {2}));
  write("run.json", R"({"format": 1, "state": "running"})");
  const RunData run = read_run(folder_);
  EXPECT_THAT(notes_of(run, facts_of(run), 120).at(0), Not(HasSubstr("killed")));
  EXPECT_THAT(notes_of(run, facts_of(run), 110 + 7200).at(0),
              HasSubstr("2 h 00 min old, so the process may have been killed"));
}

TEST_F(ReportFactsTest, ValuesOfOtherKindsAreLeftOut) {
  write("metrics.jsonl", R"({"epoch": 0, "step": 5, "loss": "NaN", "note": "x", "list": [1], "val_loss": "-Infinity"})"
                         "\n"
                         R"({"epoch": 1e300, "step": 6})"
                         "\n");
  const RunData run = read_run(folder_);
  ASSERT_THAT(run.epochs, SizeIs(1));
  ASSERT_THAT(run.epochs[0].values, SizeIs(2));
  EXPECT_TRUE(std::isnan(run.epochs[0].values[0].second));
  EXPECT_EQ(facts_of(run).bad_step, 5);
}

TEST_F(ReportFactsTest, OnlySettingsThatDifferAreDifferences) {
  RunData first;
  first.identity = {{"name", "a"}, {"seed", 1}, {"configuration", {{"lr", 0.1}, {"batch", 8}}}};
  RunData second = first;
  second.identity["name"] = "b";
  second.identity["configuration"]["lr"] = 0.2;
  second.identity["git"] = {{"commit", "abc"}};
  const auto found = differences({first, second});
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].name, "configuration.lr");
  EXPECT_THAT(found[0].values, ElementsAre("0.1", "0.2"));
  EXPECT_THAT(found[1].values, ElementsAre("", "abc"));
}

TEST_F(ReportFactsTest, FoldersOfRunsAreFound) {
  EXPECT_THAT(find_run_folders(folder_), IsEmpty());
  EXPECT_THAT(find_run_folders(folder_ / "nothing"), IsEmpty());
  fs::create_directories(folder_ / "b");
  fs::create_directories(folder_ / "a");
  write("b/run.json", "{}");
  write("a/metrics.jsonl", "");
  EXPECT_THAT(find_run_folders(folder_), ElementsAre((folder_ / "a").string(), (folder_ / "b").string()));
  EXPECT_THAT(find_run_folders(folder_ / "a"), SizeIs(1));
  std::filesystem::create_directories(folder_ / "deep/c");
  write("deep/c/run.json", "{}");
  EXPECT_THAT(find_run_folders(folder_), SizeIs(3));
  std::vector<std::string> all;
  EXPECT_EQ(add_run_folders(folder_, all), 3U);
  EXPECT_EQ(add_run_folders(folder_ / "a/../deep", all), 1U);
  EXPECT_THAT(all, SizeIs(3)) << "one folder by two names";
}

TEST_F(ReportFactsTest, APageOfNothingIsAPage) {
  write("run.json", "[]");
  const std::string page = render_page(make_report({folder_}, {"<b> is not the folder of a run"}));
  EXPECT_THAT(page, HasSubstr("run.json is damaged"));
  EXPECT_THAT(page, HasSubstr("The run has recorded no step and no epoch."));
  EXPECT_THAT(page, HasSubstr("<li>&lt;b&gt; is not the folder of a run</li>"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

}  // namespace
}  // namespace lockstep::tools::reports
