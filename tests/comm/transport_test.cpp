#include "lockstep/comm/transport/transport.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/transport/engine_module.h"
#include "tests/comm/transport_scenarios.h"
#include "tests/support/child_processes.h"
#include "tests/support/fake_job.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr auto kWorkersTimeout = 180s;

// Loading LibTorch takes long, so each process runs several scenarios.
const std::string kCarrying = "ring,all_to_all,unequal_sizes,many_in_order,sender_ahead,lanes_from_threads";
const std::string kFailing = "deadline,aborted,aborted_with_reason,length_mismatch";

/// Workers are processes of this program, each with its part of a scenario.
class GlooTransportTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto gloo = comm::find_engine("gloo");
    if (!gloo.available) GTEST_SKIP() << gloo.why_not;
  }

  /// Starts all workers, and expects exit status 0 of all but the last, which ends as `end_of_last` says.
  void run(const std::string& scenarios, const std::string& end_of_last = "exit 0") {
    const TestFolder folder;
    const int size = GetParam();
    std::vector<ChildProcess> workers;
    for (int worker = 0; worker < size; ++worker) {
      workers.emplace_back(std::vector<std::string>{this_program(), "--worker", scenarios, "gloo", folder.path(),
                                                    std::to_string(worker), std::to_string(size)},
                           folder.path() / ("output-" + std::to_string(worker)));
    }
    const auto deadline = std::chrono::steady_clock::now() + kWorkersTimeout;
    for (int worker = 0; worker < size; ++worker) {
      workers[worker].wait_until(deadline);
      EXPECT_EQ(workers[worker].outcome(), worker == size - 1 ? end_of_last : "exit 0")
          << "worker " << worker << " of " << size << ": " << workers[worker].output();
    }
  }
};

TEST_P(GlooTransportTest, CarriesMessages) { run(kCarrying); }
TEST_P(GlooTransportTest, FailsWithoutHarm) { run(kFailing); }
TEST_P(GlooTransportTest, NamesAPeerThatWasKilled) { run("killed_peer", "signal 9"); }

INSTANTIATE_TEST_SUITE_P(Workers, GlooTransportTest, ::testing::Values(2, 3),
                         [](const auto& info) { return std::to_string(info.param) + "Workers"; });

class GlooConnectTest : public GlooTransportTest {};

TEST_F(GlooConnectTest, IsAloneWithoutPeers) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 1);
  const auto transport = comm::make_transport("gloo", job, {.name = "alone", .num_lanes = 2, .timeout = 10s});
  EXPECT_EQ(transport->num_lanes(), 2);
  EXPECT_NO_THROW(transport->exchange(1, {}, {}, 1s));
  EXPECT_FALSE(transport->moves_device_memory());
}

TEST_F(GlooConnectTest, StopsWaitingWhenTheJobFails) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 2);
  // The other has announced itself, at an address where nobody answers, and then dies.
  std::thread other([&] {
    FakeJob(folder.path(), 1, 2).set("lost/gloo/1", job.get("lost/gloo/0", 60s));
    std::this_thread::sleep_for(200ms);
    job.break_off(1, "worker 1 (fake) died");
  });
  const auto start = std::chrono::steady_clock::now();
  try {
    comm::make_transport("gloo", job, {.name = "lost", .num_lanes = 1, .timeout = kWorkersTimeout});
    ADD_FAILURE() << "connected with nobody";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what_without_backtrace(), StartsWith("[gloo]"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kWorkersTimeout / 2);
  other.join();
}

TEST_F(GlooConnectTest, RefusesAShortAnnouncement) {
  for (const std::string& announced : {std::string(), std::string("\x20too short"), std::string(1, '\xff')}) {
    const TestFolder folder;
    FakeJob job(folder.path(), 0, 2);
    FakeJob(folder.path(), 1, 2).set("short/gloo/1", announced);
    try {
      comm::make_transport("gloo", job, {.name = "short", .num_lanes = 1, .timeout = 10s});
      ADD_FAILURE() << "connected";
    } catch (const CollectiveError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("must announce an address"));
    }
  }
}

TEST_F(GlooConnectTest, RefusesCertificatesThatItCannotUse) {
  if (comm::find_engine("gloo").remark.find("without TLS") == std::string_view::npos)
    GTEST_SKIP() << "this Gloo can encrypt";
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 1);
  ::setenv("LOCKSTEP_TLS_CERT", "/nowhere/worker.pem", 1);
  EXPECT_THROW(comm::make_transport("gloo", job, {.name = "secret", .num_lanes = 1, .timeout = 10s}), c10::ValueError);
  ::unsetenv("LOCKSTEP_TLS_CERT");
}

class MpiTransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto mpi = comm::find_engine("mpi");
    if (mpi.why_not.starts_with("built without")) GTEST_SKIP() << mpi.why_not;
  }
};

/// Not for a killed peer: mpirun itself ends a program one of whose processes dies.
TEST_P(MpiTransportTest, PassesScenarios) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const TestFolder folder;
  ChildProcess workers({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", this_program(), "--mpi-worker",
                        GetParam(), folder.path()},
                       folder.path() / "output");
  EXPECT_TRUE(workers.wait_until(std::chrono::steady_clock::now() + kWorkersTimeout));
  // The exit status of mpirun is not checked: workers that fail exit without MPI_Finalize, which it reports.
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(FakeJob(folder.path(), worker, 3).get("result/" + std::to_string(worker), 0ms), "0") << workers.output();
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, MpiTransportTest, ::testing::Values(kCarrying, kFailing),
                         [](const auto& info) { return info.param == kCarrying ? "Carrying" : "Failing"; });

class MpiStateTest : public MpiTransportTest {};

TEST_F(MpiStateTest, SaysThatItWasNotStartedByMpi) {
  const auto mpi = comm::find_engine("mpi");
  EXPECT_FALSE(mpi.available);
  EXPECT_THAT(std::string(mpi.why_not), HasSubstr("mpirun"));
}

TEST(EngineTableTest, KnowsAllEnginesAndWhyNot) {
  std::string names;
  for (const auto& engine : comm::engines()) {
    names += std::string(engine.name) + " ";
    EXPECT_EQ(engine.available, engine.why_not.empty()) << engine.name;
  }
  EXPECT_EQ(names, "local shm gloo mpi nccl ");
}

}  // namespace
}  // namespace lockstep::tests

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 6 && words[0] == "--worker") {
    return lockstep::tests::run_scenarios(words[1], words[2], words[3], std::stoi(words[4]), std::stoi(words[5]));
  }
  if (words.size() == 4 && words[0] == "--nccl-worker") {
    return lockstep::tests::run_nccl_worker(words[1], std::stoi(words[2]), std::stoi(words[3]));
  }
  if (words.size() == 3 && words[0] == "--mpi-worker") {
    // The numbers of workers differ from the ranks of MPI.
    const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
    const int size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
    const int worker = size - 1 - rank;
    const int result = lockstep::tests::run_scenarios(words[1], "mpi", words[2], worker, size);
    lockstep::tests::FakeJob(words[2], worker, size).set("result/" + std::to_string(worker), std::to_string(result));
    return result;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
