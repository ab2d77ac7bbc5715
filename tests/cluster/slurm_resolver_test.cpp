#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/resolvers/slurm.h"
#include "tests/cluster/expect_error.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using tests::port_of;
using tests::Variables;
using tests::with;

const Variables kSlurm{{"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "5"},
                       {"SLURM_STEP_NODELIST", "n[9-11]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};

SlurmOptions slurm(const Variables& more = {}) {
  SlurmOptions options;
  options.variables = Environment(with(kSlurm, more));
  options.device_folder = "";
  return options;
}

TEST(SlurmClusterResolverTest, DealsRanksInBlocksOrTurns) {
  const SlurmClusterResolver block(slurm());
  EXPECT_THAT(block.cluster_spec().job_tasks("worker"),
              ElementsAre("n9:8888", "n9:8889", "n10:8888", "n10:8889", "n11:8888"));
  EXPECT_EQ(block.local_task(), (LocalTask{1, 2}));
  const SlurmClusterResolver cyclic(slurm({{"SLURM_DISTRIBUTION", "cyclic:block"}}));
  EXPECT_THAT(cyclic.cluster_spec().job_tasks("worker"),
              ElementsAre("n9:8888", "n10:8888", "n11:8888", "n9:8889", "n10:8889"));
  EXPECT_EQ(cyclic.local_task(), (LocalTask{0, 2}));
  EXPECT_ERROR(SlurmClusterResolver(slurm({{"SLURM_DISTRIBUTION", "arbitrary"}})), c10::ValueError, "arbitrary");
}

TEST(SlurmClusterResolverTest, SharesOutTheGpusThatSlurmGave) {
  SlurmOptions options = slurm({{"CUDA_VISIBLE_DEVICES", "4,7"}});
  const SlurmClusterResolver resolver(options);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "7");
  EXPECT_EQ(resolver.num_accelerators(), (std::map<std::string, int>{{"GPU", 1}}));
  options = slurm({{"SLURM_GPUS_ON_NODE", "4"}});
  EXPECT_EQ(SlurmClusterResolver(options).num_accelerators().at("GPU"), 2);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "2,3");
}

/// One host with two tasks, of which this one is the second.
SlurmOptions slurm_host(const Variables& more) {
  return slurm(
      with({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}}, more));
}

// Slurm shows each task its own GPUs, under the numbers 0 and 1 (cgroups) or their own.
TEST(SlurmClusterResolverTest, KeepsTheGpusThatSlurmBoundToTheTask) {
  for (const Variables& bound :
       {Variables{{"SLURM_GPUS_PER_TASK", "2"}}, Variables{{"SLURM_GPUS_PER_TASK", "a100:2"}},
        Variables{{"SLURM_TRES_PER_TASK", "cpu:4,gres/gpu:2"}},
        Variables{{"SLURM_TRES_PER_TASK", "cpu=4,gres/gpu:a100=2"}}, Variables{{"SLURM_GPU_BIND", "single:1"}},
        Variables{{"SLURM_GPU_BIND", "per_task:2"}}, Variables{{"SLURM_GPU_BIND", "verbose,closest"}}}) {
    for (const std::string visible : {"0,1", "2,3", "GPU-aa,GPU-bb"}) {
      const SlurmOptions options =
          slurm_host(with(bound, {{"CUDA_VISIBLE_DEVICES", visible}, {"SLURM_GPUS_ON_NODE", "4"}}));
      const SlurmClusterResolver resolver(options);
      EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), visible) << bound.begin()->first;
      EXPECT_EQ(resolver.num_accelerators().at("GPU"), 2) << bound.begin()->first;
    }
  }
  SlurmOptions fewer = slurm_host({{"SLURM_GPUS_PER_TASK", "2"}, {"CUDA_VISIBLE_DEVICES", "2,3"}});
  fewer.gpus_per_task = 1;
  EXPECT_EQ(SlurmClusterResolver(fewer).num_accelerators().at("GPU"), 1);
  EXPECT_EQ(fewer.variables.get("CUDA_VISIBLE_DEVICES"), "2");
  SlurmOptions more = slurm_host({{"SLURM_GPUS_PER_TASK", "2"}, {"CUDA_VISIBLE_DEVICES", "2,3"}});
  more.gpus_per_task = 3;
  EXPECT_ERROR(SlurmClusterResolver{more}, c10::ValueError, "gpus_per_task=3");
}

TEST(SlurmClusterResolverTest, DividesGpusThatAllTasksSee) {
  // --gres-flags=allow-task-sharing shows every task all GPUs of the step.
  SlurmOptions options = slurm_host({{"SLURM_GPUS_PER_TASK", "2"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}});
  EXPECT_EQ(SlurmClusterResolver(options).num_accelerators().at("GPU"), 2);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "2,3");
  options = slurm_host({{"SLURM_GPU_BIND", "none"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}});
  EXPECT_EQ(SlurmClusterResolver(options).num_accelerators().at("GPU"), 2);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "2,3");
  options = slurm_host({{"SLURM_GPUS_PER_TASK", "1"}, {"SLURM_GPUS_ON_NODE", "4"}});
  EXPECT_EQ(SlurmClusterResolver(options).num_accelerators().at("GPU"), 1);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "1");
}

TEST(SlurmClusterResolverTest, StepsHaveTheirOwnPorts) {
  const auto port = [](const Variables& more) {
    return port_of(SlurmClusterResolver(slurm_host(more)).cluster_spec().task_address("worker", 0));
  };
  std::set<int> ports;
  for (int job = 4'000'000; job < 4'000'050; ++job) {
    for (int step = 0; step < 8; ++step) {
      ports.insert(port({{"SLURM_JOB_ID", std::to_string(job)}, {"SLURM_STEP_ID", std::to_string(step)}}));
    }
  }
  EXPECT_EQ(ports.size(), 50 * 8);
  EXPECT_GE(*ports.begin(), 20000);
  EXPECT_LT(*ports.rbegin(), 32768);
  EXPECT_EQ(port({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}),
            port({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}));
  EXPECT_GE(port({{"SLURM_JOB_ID", "4294967295"}, {"SLURM_STEP_ID", "4294967291"}}), 20000);
  EXPECT_LT(port({{"SLURM_JOB_ID", "4294967295"}, {"SLURM_STEP_ID", "4294967291"}}), 32768);
  EXPECT_EQ(port({}), 8888);
  SlurmOptions given = slurm_host({{"SLURM_JOB_ID", "7"}});
  given.port_base = 9000;
  EXPECT_THAT(SlurmClusterResolver(given).cluster_spec().job_tasks("worker"), ElementsAre("n1:9000", "n1:9001"));
  EXPECT_THAT(SlurmClusterResolver(slurm_host({{"SLURM_JOB_ID", "7"}})).facts(),
              Contains(ClusterFact{"worker 0", "n1:20007",
                                   "SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE + port of SLURM_JOB_ID, "
                                   "SLURM_STEP_ID"}));
  EXPECT_ERROR(port({{"SLURM_JOB_ID", "seven"}}), c10::ValueError, "SLURM_JOB_ID=\"seven\"");
}

TEST(SlurmClusterResolverTest, LeavesGpusAloneWhereEachTaskSeesItsOwn) {
  const SlurmOptions options = slurm({{"CUDA_VISIBLE_DEVICES", "0"}});  // two tasks on a node, one GPU visible
  EXPECT_EQ(SlurmClusterResolver(options).num_accelerators().at("GPU"), 0);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "0");
}

TEST(SlurmClusterResolverTest, NoGpusMeansThatTasksSeeNone) {
  for (const bool per_node : {true, false}) {
    SlurmOptions options = slurm({{"CUDA_VISIBLE_DEVICES", "0,1"}});
    (per_node ? options.gpus_per_node : options.gpus_per_task) = 0;
    const SlurmClusterResolver resolver(options);
    EXPECT_EQ(resolver.num_accelerators().at("GPU"), 0);
    EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "");
    EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"GPUs of this task", "none", "gpus_per_node or gpus_per_task"}));
    EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 5);
  }
  SlurmOptions options = slurm({{"CUDA_VISIBLE_DEVICES", "0,1"}});
  options.gpus_per_node = 0;
  options.auto_set_gpu = false;
  const SlurmClusterResolver resolver(options);
  EXPECT_EQ(options.variables.get("CUDA_VISIBLE_DEVICES"), "0,1") << "left alone";
}

TEST(SlurmClusterResolverTest, HostsHaveTheOrderOfTheList) {
  const auto hosts_of = [](const std::string& list) {
    const SlurmClusterResolver resolver(
        slurm({{"SLURM_STEP_NODELIST", list}, {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
    return resolver.cluster_spec().job_tasks("worker");
  };
  EXPECT_THAT(hosts_of("n[8-11]"), ElementsAre("n8:8888", "n9:8888", "n10:8888", "n11:8888"));
  EXPECT_THAT(hosts_of("n[08-11]"), ElementsAre("n08:8888", "n09:8888", "n10:8888", "n11:8888"));
  EXPECT_THAT(hosts_of("n[098-101]"), ElementsAre("n098:8888", "n099:8888", "n100:8888", "n101:8888"));
  EXPECT_THAT(hosts_of("n[9-10],m[1,02]"), ElementsAre("n9:8888", "n10:8888", "m1:8888", "m02:8888"));
}

TEST(SlurmClusterResolverTest, SaysWhereEachAddressCameFrom) {
  EXPECT_THAT(
      SlurmClusterResolver(slurm()).facts(),
      Contains(ClusterFact{"worker 2", "n10:8888", "SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE + port_base"}));
}

TEST(SlurmClusterResolverTest, SaysWhatIsWrong) {
  EXPECT_ERROR(SlurmClusterResolver(slurm({{"SLURM_PROCID", "5"}})), c10::IndexError, "SLURM_PROCID=5");
  EXPECT_ERROR(SlurmClusterResolver(slurm({{"SLURM_STEP_NUM_TASKS", "4"}})), c10::ValueError,
               "tasks of jobs=4, tasks of hosts=5");
  EXPECT_ERROR(SlurmClusterResolver(slurm({{"SLURM_STEP_NODELIST", "n[1-"}})), c10::ValueError, "[expand_hostlist]");
  EXPECT_ERROR(SlurmClusterResolver(slurm({{"SLURM_STEP_NODELIST", "a,a,b"}})), c10::ValueError, "host=\"a\"");
  SlurmOptions outside;
  outside.variables = Environment(Variables{});
  EXPECT_ERROR(SlurmClusterResolver{outside}, ContextError, "name=SLURM_PROCID");
}

}  // namespace
}  // namespace lockstep
