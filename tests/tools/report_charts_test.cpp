#include "tools/report/report_charts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/report/chart_svg.h"
#include "tools/report/format_numbers.h"

namespace lockstep::tools::reports {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A run of epochs of 100 steps, with one interval for every 50.
RunData run_of(int64_t epochs) {
  RunData run;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t half = 1; half <= 2; ++half) {
      StepInterval interval;
      interval.step = epoch * 100 + half * 50;
      interval.epoch = epoch;
      interval.time = 1000.0 + static_cast<double>(interval.step);
      interval.seconds = 50;
      interval.steps = 50;
      interval.examples = 100;
      interval.loss = 1.0 / static_cast<double>(interval.step);
      run.intervals.push_back(interval);
    }
    const int64_t step = (epoch + 1) * 100;
    run.epochs.push_back({epoch, step, 1000.0 + static_cast<double>(step), 100, 200, {{"loss", 0.5}, {"val_f1", 0.9}}});
  }
  return run;
}

TEST(ReportCharts, SmallSeriesAreKeptWhole) {
  EXPECT_THAT(visible_points({3, 1, 2}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(visible_points({}, 3), IsEmpty());
}

TEST(ReportCharts, LargeSeriesKeepEndsExtremesAndWhatIsNotFinite) {
  std::vector<double> values(100'000);
  for (size_t index = 0; index < values.size(); ++index) values[index] = std::sin(static_cast<double>(index));
  values[777] = 50;
  values[55'555] = -50;
  values[90'001] = kNaN;
  const auto kept = visible_points(values, 200);
  EXPECT_LE(kept.size(), 305U);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  for (const size_t index : {size_t{0}, size_t{777}, size_t{55'555}, size_t{90'001}, values.size() - 1}) {
    EXPECT_THAT(kept, Contains(index));
  }
}

TEST(ReportCharts, StepsEpochsAndTimeArePositionsOfOnePoint) {
  const std::vector<Chart> charts = make_charts({run_of(2)});
  const Chart& loss = charts.at(0);
  ASSERT_THAT(loss.series, SizeIs(2));
  EXPECT_EQ(loss.series[0].role, "interval");
  EXPECT_THAT(loss.series[0].x.step, ElementsAre(50, 100, 150, 200));
  EXPECT_THAT(loss.series[0].x.epoch, ElementsAre(0.5, 1, 1.5, 2));
  EXPECT_THAT(loss.series[0].x.time, ElementsAre(50, 100, 150, 200));
  EXPECT_THAT(loss.series[1].x.epoch, ElementsAre(1, 2));
  EXPECT_EQ(charts.at(1).title, "F1");
  EXPECT_EQ(charts.at(1).series.at(0).role, "validation");
}

TEST(ReportCharts, IntervalsBeginWhereTheyWereStarted) {
  const ChartSeries interval = make_charts({run_of(1)}).at(0).series.at(0);
  EXPECT_THAT(interval.begin.step, ElementsAre(0, 50));
  EXPECT_THAT(interval.begin.epoch, ElementsAre(0, 0.5));
  EXPECT_THAT(interval.begin.time, ElementsAre(0, 50));
}

TEST(ReportCharts, TimeLeavesOutWhatIsNoTraining) {
  RunData run = run_of(2);
  for (size_t index = 2; index < 4; ++index) run.intervals[index].time = *run.intervals[index].time + 86400;
  run.epochs[1].time = *run.epochs[1].time + 86400;
  EXPECT_THAT(make_charts({run}).at(0).series.at(0).x.time, ElementsAre(50, 100, 150, 200));
  const std::vector<TimeBreak> breaks = RunPositions(run).breaks();
  ASSERT_THAT(breaks, SizeIs(1));
  EXPECT_DOUBLE_EQ(breaks[0].at, 100);
  EXPECT_DOUBLE_EQ(breaks[0].seconds, 86400);
  EXPECT_THAT(RunPositions(run_of(2)).breaks(), IsEmpty());
}

TEST(ReportCharts, ImpossibleSecondsAreNoTime) {
  RunData run = run_of(2);
  run.intervals[1].seconds = 1e300;
  EXPECT_THAT(make_charts({run}).at(0).series.at(0).x.time, ElementsAre(50, 50, 100, 150));
}

TEST(ReportCharts, NumbersOfAnAxisDiffer) {
  EXPECT_THAT(axis_labels({12345.001, 12345.002, 12345.003}, Chart::Unit::Plain),
              ElementsAre("12\u202f345.001", "12\u202f345.002", "12\u202f345.003"));
  EXPECT_THAT(axis_labels({0, 0.25, 0.5}, Chart::Unit::Plain), ElementsAre("0", "0.25", "0.50"));
  EXPECT_THAT(axis_labels({0, 5000, 10000}, Chart::Unit::Plain), ElementsAre("0", "5000", "10\u202f000"));
  EXPECT_THAT(axis_labels({1e30, 1.5e30}, Chart::Unit::Plain), ElementsAre("1.0e+30", "1.5e+30"));
  EXPECT_THAT(axis_labels({0.0255, 0.026}, Chart::Unit::Seconds), ElementsAre("25.5 ms", "26.0 ms"));
  EXPECT_THAT(axis_labels({1048576, 1572864}, Chart::Unit::Bytes), ElementsAre("1.0 MiB", "1.5 MiB"));
}

TEST(ReportCharts, AResumedRunBeginsAtItsEpoch) {
  RunData run = run_of(4);
  run.epochs.erase(run.epochs.begin(), run.epochs.begin() + 2);
  run.intervals.erase(run.intervals.begin(), run.intervals.begin() + 4);
  EXPECT_THAT(make_charts({run}).at(0).series.at(0).x.epoch, ElementsAre(2.5, 3, 3.5, 4));
}

TEST(ReportCharts, ChartsWithoutPointsAreLeftOut) {
  EXPECT_THAT(make_charts({RunData(), RunData()}), IsEmpty());
  for (const Chart& chart : make_charts({run_of(1)})) EXPECT_NE(chart.id, "memory");
}

TEST(ReportCharts, PicturesOfOddValuesHaveOnlyNumbers) {
  for (const auto& values : std::vector<std::vector<double>>{
           {kNaN}, {5}, {0, 0}, {1.7e308, -1.7e308, 1e300, -1e300}, {kNaN, 1, kNaN}, {1e17, 1e17 + 16}}) {
    Chart chart{"x", "X <", "curves", Chart::Kind::Lines, Chart::Unit::Plain, false, {{0, "train", {}, {}, values}}};
    for (size_t index = 0; index < values.size(); ++index) chart.series[0].x.step.push_back(static_cast<double>(index));
    const std::string svg = draw_chart(chart, step_range({chart}), 1);
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << svg;
    EXPECT_THAT(svg, Not(HasSubstr("inf"))) << svg;
    EXPECT_THAT(svg, HasSubstr("X &lt;"));
  }
}

TEST(ReportCharts, TicksAreRound) {
  EXPECT_THAT(axis_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(axis_ticks(0, 1000, 4), ElementsAre(0, 250, 500, 750, 1000));
  EXPECT_THAT(axis_ticks(0, 4096, 4, Chart::Unit::Bytes), ElementsAre(0, 1024, 2048, 3072, 4096));
  EXPECT_THAT(axis_ticks(1, 1, 4), IsEmpty());
}

TEST(ReportCharts, NumbersAreForPeople) {
  EXPECT_EQ(format_number(0.123456), "0.1235");
  EXPECT_EQ(format_number(9876), "9876");
  EXPECT_EQ(format_number(1234, 3), "1234");
  EXPECT_EQ(format_number(1234567), "1\u202f234\u202f567");
  EXPECT_EQ(format_number(-12345), "-12\u202f345");
  EXPECT_EQ(format_number(kNaN), "NaN");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(0), "0");
  EXPECT_EQ(format_duration(3725), "1 h 02 min");
  EXPECT_EQ(format_duration(65), "1 min 05 s");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
}

}  // namespace
}  // namespace lockstep::tools::reports
