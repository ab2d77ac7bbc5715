// The faults of a running job: whatever one worker does wrong, every other one ends in time with an error that says who
// it was, in which collective and where, and leaves a file for the doctor. Needs no more than this machine.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/join.h"
#include "tests/support/free_port.h"
#include "tests/workers/fault_job.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::Values;

constexpr double kCollectiveTimeout = 2;
/// Seconds after which a mismatch of calls has ended the job.
constexpr double kSoon = 2 + kLoad;
constexpr const char* kSite = "at fault_worker\\.cpp:[0-9]+";

// Half of the faults happen to workers with one replica, half to workers with two.
int devices_for(const std::string& when) { return when == "between" ? 1 : 2; }

std::vector<std::string> orders(int victim, const std::string& fault, const std::string& when) {
  return {"--victim",  std::to_string(victim),           "--fault", fault, "--when", when,
          "--devices", std::to_string(devices_for(when))};
}

// The error of a worker without a fault of its own.
void expect_worker_error(const Ending& ending, int victim, double since, double limit) {
  EXPECT_EQ(ending.outcome, "exit 3") << ending.text;
  EXPECT_EQ(ending.type, "WorkerError") << ending.text;
  EXPECT_LT(ending.at - since, limit) << ending.text;
  EXPECT_THAT(ending.text, HasSubstr("worker " + std::to_string(victim) + " ("));
  // A function may have returned before its GPU has done what it queued.
  if (engines().front() == "nccl" && ending.text.starts_with("[run]")) return;
  EXPECT_THAT(ending.text,
              AllOf(ContainsRegex(kSite), ContainsRegex("(reduce|gather|optimizer step|comparison of replicas)\\(")));
}

void expect_files_of_others(const FaultJob& job, int victim) {
  for (int worker = 0; worker < job.num_workers(); ++worker) {
    EXPECT_TRUE(worker == victim || job.dumps().contains(worker)) << "worker " << worker << " has left no file";
  }
}

// A job leaves no port in use and no shared memory behind.
void expect_nothing_left(const FaultJob& job) {
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    // Launchers that other tests have started have folders there.
    if (name.starts_with("lockstep-run-")) continue;
    EXPECT_THAT(name, ::testing::Not(HasSubstr("lockstep")));
  }
  EXPECT_TRUE(is_free_port(job.port(0))) << "somebody still listens";
}

class SignalTest : public TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(SignalTest, EndsTheJobOnAllOthers) {
  const std::string fault = std::get<0>(GetParam());
  const int victim = std::get<2>(GetParam());
  const bool stops = fault == "stop";
  // The connection shows that a process died; heartbeats are needed only for one that is stopped.
  const double limit = stops ? kHeartbeatTimeout + kLoad : 2;
  for_engines([&](const std::string& engine) {
    FaultJob job({.engine = engine,
                  .variables = {"LOCKSTEP_HEARTBEAT_TIMEOUT=" + std::to_string(stops ? kHeartbeatTimeout : 10)}});
    job.start_all(orders(victim, fault, std::get<1>(GetParam())));
    const double since = job.wait_for(victim, "fault")["at"];
    for (int worker = 0; worker < job.num_workers(); ++worker) {
      if (worker == victim) continue;
      const Ending ending = job.end_of(worker);
      expect_worker_error(ending, victim, since, limit);
      EXPECT_EQ(ending.cause, victim) << ending.text;
      EXPECT_THAT(ending.text, HasSubstr(stops ? "was silent for" : "died: its connection was closed"));
    }
    expect_files_of_others(job, victim);
    EXPECT_THAT(job.diagnosis(),
                AllOf(HasSubstr("worker " + std::to_string(victim) + ": no file"), ContainsRegex(kSite)));
    if (stops) {
      job.send_signal(victim, SIGCONT);
      const Ending ending = job.end_of(victim);
      EXPECT_EQ(ending.type, "WorkerError") << ending.text;
    }
    expect_nothing_left(job);
  });
}

// Worker 0 coordinates the job.
INSTANTIATE_TEST_SUITE_P(Faults, SignalTest,
                         Values(std::tuple("kill", "inside", 1), std::tuple("kill", "between", 1),
                                std::tuple("kill", "inside", 0), std::tuple("stop", "inside", 1),
                                std::tuple("stop", "between", 1), std::tuple("stop", "between", 0)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) + "_worker" +
                                  std::to_string(std::get<2>(info.param));
                         });

TEST(SlowTest, EndsTheJobAtTheTimeout) {
  for_engines({"inside", "between"}, [](const std::string& engine, const std::string& when) {
    FaultJob job(
        {.engine = engine, .variables = {"LOCKSTEP_COLLECTIVE_TIMEOUT=" + std::to_string(kCollectiveTimeout)}});
    auto arguments = orders(1, "slow", when);
    arguments.insert(arguments.end(), {"--pause", "5"});
    job.start_all(arguments);
    const double since = job.wait_for(1, "fault")["at"];
    for (const int worker : {0, 2}) {
      const Ending ending = job.end_of(worker);
      expect_worker_error(ending, 1, since, kCollectiveTimeout + kLoad);
      EXPECT_THAT(ending.text, ContainsRegex("timeout=2( s|000 ms)"));
      EXPECT_THAT(ending.text,
                  ContainsRegex("(missing rank [1-3] of |peers=)worker 1 \\([0-9.:]*\\)(;| \\(last call)"));
    }
    expect_files_of_others(job, 1);
    EXPECT_THAT(job.diagnosis(), AllOf(HasSubstr("worker 1: no file"), ContainsRegex(kSite)));
    EXPECT_EQ(job.end_of(1).type, "WorkerError");
    expect_nothing_left(job);
  });
}

class MismatchTest : public TestWithParam<const char*> {};

TEST_P(MismatchTest, IsToldToAllWithBothCalls) {
  for_engines({"inside", "between"}, [](const std::string& engine, const std::string& when) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all(orders(1, GetParam(), when));
    const double since = job.wait_for(1, "fault")["at"];
    for (const int worker : {0, 1}) {
      const Ending ending = job.end_of(worker);
      expect_worker_error(ending, 1, since, kLoad);
      const std::string call = "worker [01] \\([^)]*\\) calls [a-z_]+\\([^)]*\\) (by NCCL )?" + std::string(kSite);
      EXPECT_THAT(ending.text, ContainsRegex(call + ".* of " + call));
    }
    expect_files_of_others(job, -1);
    EXPECT_THAT(job.diagnosis(), AllOf(HasSubstr("is not the same for all: "),
                                       ContainsRegex("(rank 1|ranks 2, 3) made "), ContainsRegex(kSite)));
    expect_nothing_left(job);
  });
}

INSTANTIATE_TEST_SUITE_P(Faults, MismatchTest, Values("shape", "call"), [](const auto& info) { return info.param; });

// Without a check of calls, both of these give wrong results and no error over some engines.
TEST(OwnerTest, OptimizersAreNotMixed) {
  for_engines({"order 2x1", "order 2x2", "reduce 2x1", "reduce 2x2"}, [](const std::string& engine,
                                                                         const std::string& value) {
    const std::string fault = value.substr(0, value.find(' '));
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all({"--victim", "1", "--fault", fault, "--when", "inside", "--devices", value.substr(value.size() - 1)});
    const double since = job.wait_for(1, "fault")["at"];
    for (const int worker : {0, 1}) {
      const Ending ending = job.end_of(worker);
      EXPECT_EQ(ending.outcome, "exit 3") << ending.text;
      EXPECT_LT(ending.at - since, kSoon) << ending.text;
      const std::string own = fault == "order" ? "of optimizer 1" : "reduce_gradients of optimizer 0";
      EXPECT_THAT(ending.text,
                  AllOf(ContainsRegex("(minimize|step) of optimizer 0"), HasSubstr(own), ContainsRegex(kSite)));
    }
    expect_nothing_left(job);
  });
}

// The timeout of collectives is 10 minutes: no replica and no thread that sends gradients waits for it.
TEST(ThrowTest, EndsTheJobOnAllReplicasAndWorkers) {
  for_engines({"inside", "backward", "late"}, [](const std::string& engine, const std::string& when) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all(orders(1, "throw", when));
    const double since = job.wait_for(1, "fault")["at"];
    const Ending own = job.end_of(1);
    EXPECT_EQ(own.type, "exception") << own.text;
    EXPECT_THAT(own.text, HasSubstr("the data is broken"));
    EXPECT_LT(own.at - since, kLoad);
    const Ending other = job.end_of(0);
    expect_worker_error(other, 1, since, kLoad);
    EXPECT_EQ(other.cause, 1) << other.text;
    EXPECT_THAT(other.text, HasSubstr("failed: the data is broken"));
    expect_nothing_left(job);
  });
}

TEST(ReturnTest, EndsTheJobOnAllReplicasAndWorkers) {
  for_engines({"inside", "late"}, [](const std::string& engine, const std::string& when) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all(orders(1, "return", when));
    const double since = job.wait_for(1, "fault")["at"];
    for (const int worker : {0, 1}) {
      const Ending ending = job.end_of(worker);
      EXPECT_EQ(ending.outcome, "exit 3") << ending.text;
      EXPECT_LT(ending.at - since, kSoon) << ending.text;
      EXPECT_THAT(ending.text, AllOf(ContainsRegex("(replica 1 returned|has ended run)"), ContainsRegex(kSite)));
    }
    expect_nothing_left(job);
  });
}

// A worker that has ended the run and computes on does not hear of the call that others wait in.
TEST(ReturnTest, OfAWholeWorkerIsNoticedByOthers) {
  for_engines([](const std::string& engine) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all({"--victim", "1", "--fault", "return", "--when", "inside", "--devices", "1", "--pause", "8"});
    const double since = job.wait_for(1, "fault")["at"];
    const Ending ending = job.end_of(0);
    expect_worker_error(ending, 1, since, kSoon);
    EXPECT_THAT(ending.text, HasSubstr("has ended run"));
  });
}

TEST(LeaveTest, IsNoticedByAllOthers) {
  for_engines({"between", "exit"}, [&](const std::string& engine, const std::string& when) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all(orders(1, "leave", when));
    const double since = job.wait_for(1, "fault")["at"];
    expect_worker_error(job.end_of(0), 1, since, kLoad);
    EXPECT_EQ(job.end_of(1).outcome, "exit 0");
  });
}

// Calls inside and outside of run belong to different groups: the workers wait for each other. 2x1, 2x2 and 4x1.
TEST(ElsewhereTest, EndsWithBothCalls) {
  for_engines({"2x1", "2x2", "4x1"}, [&](const std::string& engine, const std::string& layout) {
    const int num_workers = layout[0] - '0';
    FaultJob job({.engine = engine, .num_workers = num_workers});
    job.start_all({"--victim", "1", "--fault", "elsewhere", "--when", "between", "--devices", layout.substr(2)});
    const double since = job.wait_for(1, "fault")["at"];
    for (int worker = 0; worker < num_workers; ++worker) {
      const Ending ending = job.end_of(worker);
      expect_worker_error(ending, 1, since, kSoon);
      EXPECT_EQ(ending.cause, -1);
      const std::string call = "of worker [0-3] \\([^)]*\\) waits in [a-z_ ]+\\([^)]*\\) " + std::string(kSite);
      EXPECT_THAT(ending.text, ContainsRegex(call + ".* " + call));
      EXPECT_THAT(ending.text, AllOf(ContainsRegex("of worker 1 \\([^)]*\\) waits in reduce\\("),
                                     ContainsRegex("waits in (optimizer step|all_reduce)\\(")));
    }
    expect_files_of_others(job, -1);
    EXPECT_THAT(job.diagnosis(), AllOf(HasSubstr("out of step"), HasSubstr("worker 1")));
    expect_nothing_left(job);
  });
}

// The error of a process with another token.
std::string intrude(const FaultJob& job) {
  try {
    comm::join_job({.addresses = job.addresses(),
                    .worker = 1,
                    .token = "a guess",
                    .join_timeout = std::chrono::seconds(static_cast<int>(kPatience))});
  } catch (const CollectiveError& error) {
    return error.what_without_backtrace();
  }
  return "welcome";
}

// Workers that have waited for long are reported. One that sleeps, in a replica or outside, is not out of step.
TEST(HealthyTest, SlowWorkersAreNoMismatch) {
  for_engines({"inside", "between"}, [&](const std::string& engine, const std::string& when) {
    FaultJob job({.engine = engine, .num_workers = 2});
    auto arguments = orders(1, "slow", when);
    arguments.insert(arguments.end(), {"--steps", "5", "--pause", "1.5"});
    job.start_all(arguments);
    for (const int worker : {0, 1}) EXPECT_EQ(job.end_of(worker).outcome, "exit 0") << job.end_of(worker).text;
    EXPECT_TRUE(job.dumps().empty());
  });
}

TEST(HealthyTest, OtherConnectionsDoNotDisturb) {
  for_engines([&](const std::string& engine) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all({"--steps", "30", "--pause", "0.05"});
    job.wait_for(0, "trains");
    EXPECT_TRUE(say_to_port(job.port(0), std::string(100'000, '\xff')));
    EXPECT_THAT(intrude(job), ContainsRegex("worker 1 .*was turned away by the coordinator at .*wrong token"));
    for (const int worker : {0, 1}) EXPECT_EQ(job.end_of(worker).outcome, "exit 0") << job.end_of(worker).text;
    EXPECT_TRUE(job.dumps().empty());
    expect_nothing_left(job);
  });
}

TEST(HealthyTest, ASignalWritesAFileAndTrainingGoesOn) {
  for_engines([&](const std::string& engine) {
    FaultJob job({.engine = engine, .num_workers = 2});
    job.start_all({"--steps", "30", "--pause", "0.05"});
    job.wait_for(1, "trains");
    job.send_signal(1, SIGUSR1);
    for (int worker = 0; worker < 2; ++worker)
      EXPECT_EQ(job.end_of(worker).outcome, "exit 0") << job.end_of(worker).text;
    EXPECT_EQ(job.dumps().size(), 1);
    EXPECT_TRUE(job.dumps().contains(1));
    EXPECT_THAT(job.diagnosis(), HasSubstr("because of SIGUSR1"));
  });
}

}  // namespace
}  // namespace lockstep::tests
