#include "tools/doctor/doctor_trace.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/doctor/doctor_report.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Kind = RankPosition::Kind;

/// Writes dumps of a job of two workers with two replicas each: worker 0 has ranks 0 and 1, worker 1 has ranks 2 and 3.
class DoctorTraceTest : public ::testing::Test {
 protected:
  DoctorTraceTest() : folder_(fs::temp_directory_path() / ("lockstep_doctor_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~DoctorTraceTest() override { fs::remove_all(folder_); }

  static std::string head(int worker, const std::string& reason = "SIGUSR1") {
    return R"({"lockstep_dump": 1, "worker": )" + std::to_string(worker) +
           R"(, "num_workers": 2, "replicas_per_worker": 2, "host": "n)" + std::to_string(worker) +
           R"(", "pid": 77, "time": "2026-11-15T12:00:00Z", "reason": ")" + reason + "\"}\n";
  }

  /// One call, which starts at `sequence` seconds and takes half of one.
  static std::string call(int rank, int sequence, const std::string& state,
                          const std::string& text = "all_reduce(SUM, float32[3])",
                          const std::string& group = "replicas") {
    const int64_t start = sequence * int64_t{1'000'000'000};
    std::ostringstream line;
    line << R"({"group": ")" << group << R"(", "rank": )" << rank << R"(, "sequence": )" << sequence << R"(, "call": ")"
         << text << R"(", "site": "train.cpp:)" << 100 + sequence << R"(", "tensors": 1, "bytes": 12, "start_ns": )"
         << start << R"(, "end_ns": )" << (state == "arrived" ? 0 : start + 500'000'000) << R"(, "state": ")" << state
         << "\"}\n";
    return line.str();
  }

  static std::string calls_done(int rank, int first, int last) {
    std::string result;
    for (int sequence = first; sequence <= last; ++sequence) result += call(rank, sequence, "done");
    return result;
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  static Diagnosis diagnose_files(const std::vector<std::string>& files) {
    std::vector<WorkerDump> dumps;
    for (const std::string& file : files) dumps.push_back(read_dump(file));
    return diagnose(std::move(dumps));
  }

  static std::string text_of(const Diagnosis& diagnosis) {
    std::ostringstream out;
    print(diagnosis, out);
    return out.str();
  }

  fs::path folder_;
};

TEST_F(DoctorTraceTest, RanksThatHaveFinishedTheSameCallsAreInStep) {
  const auto first = write("0", head(0) + calls_done(0, 3, 9) + calls_done(1, 3, 9));
  const auto second = write("1", head(1) + calls_done(2, 5, 9) + calls_done(3, 5, 9));
  const Diagnosis result = diagnose_files({first, second});
  EXPECT_TRUE(result.in_step);
  EXPECT_THAT(result.missing_workers, IsEmpty());
  ASSERT_THAT(result.groups, SizeIs(1));
  EXPECT_EQ(result.groups[0].finished_by_all, 9);
  ASSERT_THAT(result.groups[0].ranks, SizeIs(4));
  EXPECT_EQ(result.groups[0].ranks[3].worker, 1);
  EXPECT_EQ(result.groups[0].ranks[3].kind, Kind::Outside);
  EXPECT_THAT(text_of(result), HasSubstr("in step: all ranks have made the same calls and none waits\n"));
}

// An answer to `lockstep doctor JOB` that came too late lies beside the dumps.
TEST_F(DoctorTraceTest, AnswersToLooksAreNoDumps) {
  const auto first = write("0", head(0) + calls_done(0, 3, 9) + calls_done(1, 3, 9));
  const auto second = write("1", head(1) + calls_done(2, 5, 9) + calls_done(3, 5, 9));
  const auto look = write("2", head(1, "lockstep doctor") + calls_done(2, 5, 7) + calls_done(3, 5, 7));
  for (const auto& files : {std::vector{first, second, look}, std::vector{look, second, first}}) {
    const Diagnosis result = diagnose_files(files);
    EXPECT_TRUE(result.in_step);
    EXPECT_THAT(text_of(result), HasSubstr(look + ": not used\n  not used: it is an answer to"));
  }
  EXPECT_EQ(diagnose_files({look}).dumps.at(0).worker, 1) << "better than nothing";
}

TEST_F(DoctorTraceTest, TextThatIsNoUtf8IsReplaced) {
  const auto file = write("0", head(0, "caf\xe9") + calls_done(0, 3, 9) + call(1, 3, "done", "x\xff"));
  const WorkerDump dump = read_dump(file);
  EXPECT_EQ(dump.worker, 0);
  EXPECT_EQ(dump.reason, "caf\xef\xbf\xbd");
  EXPECT_THAT(dump.damage, IsEmpty());
  EXPECT_EQ(dump.groups.at("replicas").at(1).at(0).text, "x\xef\xbf\xbd");
}

TEST_F(DoctorTraceTest, ARankThatNeverCameIsNamedWithWhereToLook) {
  const auto waits = [](int rank) { return calls_done(rank, 10, 16) + call(rank, 17, "arrived"); };
  const auto first = write("0", head(0) + waits(0) + waits(1));
  const auto second = write("1", head(1) + waits(2) + calls_done(3, 10, 16));
  const Diagnosis result = diagnose_files({first, second});
  EXPECT_FALSE(result.in_step);
  const GroupTrace& group = result.groups.at(0);
  EXPECT_EQ(group.finished_by_all, 16);
  EXPECT_EQ(group.ranks.at(0).kind, Kind::Waiting);
  EXPECT_FALSE(group.ranks.at(0).behind);
  EXPECT_TRUE(group.ranks.at(3).behind);
  EXPECT_DOUBLE_EQ(group.ranks.at(3).seconds, 0.5);  // its worker's latest time is 17 s, it left call 16 at 16.5 s
  EXPECT_EQ(
      result.summary,
      "worker 1 rank 3 never made call 17, all_reduce(SUM, float32[3]) at train.cpp:117 of group replicas, where "
      "ranks 0, 1, 2 (workers 0, 1) wait; it finished call 16 and was in no collective afterwards: look at what it "
      "does between train.cpp:116 and train.cpp:117");
}

TEST_F(DoctorTraceTest, ARankThatWaitsInAnotherGroupIsSaidTo) {
  const auto waits = [](int rank) { return calls_done(rank, 4, 4) + call(rank, 5, "arrived"); };
  const auto first = write("0", head(0) + waits(0) + waits(1) + call(0, 2, "arrived", "barrier()", "workers"));
  const auto second =
      write("1", head(1) + waits(2) + calls_done(3, 4, 4) + call(1, 2, "arrived", "barrier()", "workers"));
  EXPECT_THAT(
      diagnose_files({first, second}).summary,
      HasSubstr("it finished call 4, and its worker waits in call 2, barrier() at train.cpp:102 of group workers"));
}

TEST_F(DoctorTraceTest, ARankWithoutAnyCallIsBehind) {
  const auto first = write("0", head(0) + call(0, 0, "arrived") + call(1, 0, "arrived"));
  const auto second = write("1", head(1) + call(2, 0, "arrived"));
  const Diagnosis result = diagnose_files({first, second});
  EXPECT_EQ(result.groups.at(0).finished_by_all, -1);
  EXPECT_TRUE(result.groups.at(0).ranks.at(3).behind);
  EXPECT_THAT(result.summary, HasSubstr("worker 1 rank 3 never made call 0"));
  EXPECT_THAT(result.summary, HasSubstr("it made no call before and was in no collective afterwards"));
}

TEST_F(DoctorTraceTest, TheFirstDifferenceOfCallsIsShownWithBothTexts) {
  const auto first =
      write("0", head(0) + calls_done(0, 5, 6) + call(0, 7, "failed") + calls_done(1, 5, 6) + call(1, 7, "failed"));
  const auto second =
      write("1", head(1, "replicas disagree") + calls_done(2, 5, 6) + call(2, 7, "failed") + calls_done(3, 5, 6) +
                     call(3, 7, "failed", "all_gather(int64[2])") + call(3, 8, "arrived", "barrier()"));
  const Diagnosis result = diagnose_files({first, second});
  ASSERT_TRUE(result.groups.at(0).mismatch.has_value());
  const Mismatch& mismatch = *result.groups[0].mismatch;
  EXPECT_EQ(mismatch.sequence, 7);
  ASSERT_THAT(mismatch.sides, SizeIs(2));
  EXPECT_THAT(mismatch.sides[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_EQ(mismatch.sides[0].call.text, "all_reduce(SUM, float32[3])");
  EXPECT_THAT(mismatch.sides[1].ranks, ElementsAre(3));
  EXPECT_EQ(mismatch.sides[1].call.text, "all_gather(int64[2])");
  EXPECT_EQ(result.summary,
            "call 7 of group replicas is not the same for all: ranks 0, 1, 2 made all_reduce(SUM, float32[3]) at "
            "train.cpp:107, rank 3 made all_gather(int64[2]) at train.cpp:107, so look at where their ways part after "
            "call 6");
}

TEST_F(DoctorTraceTest, AWorkerWithoutAFileIsMissed) {
  const auto waits = [](int rank) { return calls_done(rank, 1, 2) + call(rank, 3, "arrived"); };
  const Diagnosis result = diagnose_files({write("0", head(0) + waits(0) + waits(1))});
  EXPECT_FALSE(result.in_step);
  EXPECT_THAT(result.missing_workers, ElementsAre(1));
  EXPECT_EQ(result.groups.at(0).ranks.at(2).kind, Kind::Unknown);
  EXPECT_FALSE(result.groups.at(0).ranks.at(2).behind);
  EXPECT_THAT(result.summary,
              HasSubstr("worker 1 left no file that can be used, and ranks 0, 1 (worker 0) wait in call 3"));
  EXPECT_THAT(text_of(result), HasSubstr("worker 1 rank 2: no file\n"));
}

TEST_F(DoctorTraceTest, ATruncatedFileIsUsedAsFarAsItGoes) {
  const auto first = write("0", head(0) + calls_done(0, 1, 3) + calls_done(1, 1, 3));
  const std::string whole = head(1) + calls_done(2, 1, 3) + calls_done(3, 1, 3);
  const auto second = write("1", whole.substr(0, whole.size() - 40));
  const Diagnosis result = diagnose_files({first, second});
  EXPECT_EQ(result.groups.at(0).ranks.at(2).finished, 3);
  EXPECT_EQ(result.groups.at(0).ranks.at(3).finished, 2);
  EXPECT_THAT(result.dumps.at(1).damage, ElementsAre("line 7 cannot be used (it is cut or not JSON)"));
  EXPECT_THAT(text_of(result), HasSubstr("  line 7 cannot be used (it is cut or not JSON)\n"));
}

TEST_F(DoctorTraceTest, LinesThatSayNothingAreNamedAndLeftOut) {
  const auto file = write("0", head(0) + "[]\n" + R"({"group": "replicas", "rank": 0})" + "\nnoise\n" +
                                   call(0, 1, "asleep") + calls_done(0, 1, 1) + calls_done(1, 1, 1));
  const WorkerDump dump = read_dump(file);
  EXPECT_THAT(dump.damage, SizeIs(4));
  EXPECT_THAT(dump.groups.at("replicas").at(0), SizeIs(1));
}

TEST_F(DoctorTraceTest, EmptyMissingAndForeignFilesAreNamed) {
  const auto empty = write("empty", "");
  const auto foreign = write("foreign", "{\"lockstep_dump\": 2}\n");
  const Diagnosis result = diagnose_files({empty, folder_ / "nothing", foreign});
  EXPECT_FALSE(result.in_step);
  EXPECT_EQ(result.summary, "none of the files can be used");
  EXPECT_THAT(result.dumps.at(0).damage, ElementsAre("the file is empty"));
  EXPECT_THAT(result.dumps.at(1).damage, ElementsAre("the file cannot be opened"));
  EXPECT_THAT(result.dumps.at(2).damage, ElementsAre(HasSubstr("this command reads 1")));
  EXPECT_THAT(text_of(result), HasSubstr("empty: not used\n  the file is empty\n"));
}

TEST_F(DoctorTraceTest, AllInOneCallPointsAtTheConnections) {
  const auto first = write("0", head(0) + call(0, 4, "arrived") + call(1, 4, "arrived"));
  const auto second = write("1", head(1) + call(2, 4, "arrived") + call(3, 4, "arrived"));
  EXPECT_THAT(diagnose_files({first, second}).summary, HasSubstr("all ranks have come to call 4"));
}

TEST_F(DoctorTraceTest, AFailureOfAllIsTold) {
  const auto first = write("0", head(0, "connection lost") + call(0, 4, "failed") + call(1, 4, "failed"));
  const auto second = write("1", head(1, "connection lost") + call(2, 4, "failed") + call(3, 4, "failed"));
  const std::string summary = diagnose_files({first, second}).summary;
  EXPECT_THAT(summary, HasSubstr("ranks 0, 1, 2, 3 (workers 0, 1) failed in call 4"));
  EXPECT_THAT(summary, HasSubstr(": connection lost"));
}

TEST_F(DoctorTraceTest, GroupsInsideWorkersAreNotMixed) {
  const auto local = [](int rank, int sequence) {
    return call(rank, sequence, "done", "barrier()", "replica threads");
  };
  const auto first = write("0", head(0) + local(0, 1) + local(1, 1));
  const auto second = write("1", head(1) + local(0, 8) + local(1, 8));
  const Diagnosis result = diagnose_files({first, second});
  EXPECT_TRUE(result.in_step) << result.summary;
  ASSERT_THAT(result.groups, SizeIs(2));
  EXPECT_EQ(result.groups[1].name, "replica threads of worker 1");
}

TEST_F(DoctorTraceTest, TheLaterOfTwoFilesOfAWorkerCounts) {
  std::string later = head(0);
  later.replace(later.find("T12:00"), 6, "T13:00");
  const auto old_file = write("old", head(0) + calls_done(0, 1, 1) + calls_done(1, 1, 1));
  const auto new_file = write("new", later + calls_done(0, 1, 5) + calls_done(1, 1, 5));
  const auto second = write("1", head(1) + calls_done(2, 1, 5) + calls_done(3, 1, 5));
  for (const auto& files : {std::vector{old_file, new_file, second}, std::vector{new_file, second, old_file}}) {
    const Diagnosis result = diagnose_files(files);
    EXPECT_TRUE(result.in_step) << result.summary;
    EXPECT_EQ(result.groups.at(0).finished_by_all, 5);
    EXPECT_THAT(text_of(result), HasSubstr("is of the same worker"));
  }
}

TEST_F(DoctorTraceTest, TheJsonHoldsWhatIsPrinted) {
  const auto file = write("0", head(0) + calls_done(0, 1, 2) + calls_done(1, 1, 1) + call(1, 2, "arrived"));
  const Json json = to_json(diagnose_files({file}));
  EXPECT_EQ(json["files"][0]["host"], "n0");
  EXPECT_EQ(json["missing_workers"], Json::array({1}));
  EXPECT_EQ(json["groups"][0]["finished_by_all"], 1);
  EXPECT_EQ(json["groups"][0]["ranks"][1]["state"], "waiting");
  EXPECT_EQ(json["groups"][0]["ranks"][1]["site"], "train.cpp:102");
  EXPECT_EQ(json["groups"][0]["ranks"][3]["state"], "unknown");
  EXPECT_TRUE(json["groups"][0]["mismatch"].is_null());
  EXPECT_FALSE(json["in_step"].get<bool>());
  EXPECT_THAT(json["story"].get<std::string>(), Not(IsEmpty()));
}

}  // namespace
}  // namespace lockstep::tools
