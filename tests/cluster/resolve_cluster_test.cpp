#include "lockstep/cluster/resolve_cluster.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/cluster/expect_error.h"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

std::string chosen(const Variables& variables) {
  const ClusterChoice choice = choose_cluster(Environment(variables));
  return choice.candidates.back().is_chosen ? choice.candidates.back().name : "none";
}

const Variables kTorchrunFound{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpiFound{
    {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"LOCKSTEP_COORDINATOR", "n1:1"}};
const Variables kSlurmFound{{"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NODELIST", "n[1-2]"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                            {"CUDA_VISIBLE_DEVICES", ""}};
const Variables kHydra{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"LOCKSTEP_COORDINATOR", "n1:1"}};
const Variables kIndexedJobFound{
    {"JOB_COMPLETION_INDEX", "0"}, {"LOCKSTEP_NUM_WORKERS", "2"}, {"LOCKSTEP_SERVICE", "s"}, {"HOSTNAME", "t-0"}};
const Variables kSageMaker{{"SM_HOSTS", R"(["a", "b"])"}, {"SM_CURRENT_HOST", "a"}};

Variables all_of(std::initializer_list<Variables> parts) {
  Variables result;
  for (const Variables& part : parts) result.insert(part.begin(), part.end());
  return result;
}

TEST(ResolveClusterTest, EveryLauncherIsFound) {
  EXPECT_EQ(chosen({{"TF_CONFIG", "{}"}}), "TF_CONFIG");
  EXPECT_EQ(chosen(kTorchrunFound), "torchrun");
  EXPECT_EQ(chosen(kOpenMpiFound), "Open MPI");
  EXPECT_EQ(chosen(kSlurmFound), "Slurm");
  EXPECT_EQ(chosen(kHydra), "MPI");
  EXPECT_EQ(chosen(kIndexedJobFound), "Kubernetes indexed Job");
  EXPECT_EQ(chosen(kSageMaker), "SageMaker");
}

TEST(ResolveClusterTest, TheFirstInOrderWins) {
  EXPECT_EQ(
      chosen(all_of(
          {kSageMaker, kIndexedJobFound, kHydra, kSlurmFound, kOpenMpiFound, kTorchrunFound, {{"TF_CONFIG", "{}"}}})),
      "TF_CONFIG");
  EXPECT_EQ(chosen(all_of({kSageMaker, kIndexedJobFound, kHydra, kSlurmFound, kOpenMpiFound, kTorchrunFound})),
            "torchrun");
  EXPECT_EQ(chosen(all_of({kSlurmFound, kOpenMpiFound})), "Open MPI");
  EXPECT_EQ(chosen(all_of({kSlurmFound, kHydra})), "Slurm");
}

TEST(ResolveClusterTest, OneTaskAloneIsNoCluster) {
  for (Variables variables : {kTorchrunFound, kOpenMpiFound, kSlurmFound, kHydra, kIndexedJobFound}) {
    for (const char* size :
         {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE", "LOCKSTEP_NUM_WORKERS"}) {
      if (variables.contains(size)) variables[size] = "1";
    }
    EXPECT_EQ(chosen(variables), "none");
    EXPECT_FALSE(resolve_cluster(Environment(variables))->cluster_spec());
  }
  EXPECT_EQ(chosen({{"SM_HOSTS", R"(["a"])"}, {"SM_CURRENT_HOST", "a"}}), "none");
}

TEST(ResolveClusterTest, SaysWhyNothingWasFound) {
  const ClusterChoice choice = choose_cluster(Environment({{"RANK", "0"}}));
  EXPECT_EQ(choice.candidates.at(0).reason, "TF_CONFIG is not set");
  EXPECT_EQ(choice.candidates.at(1).reason, "MASTER_ADDR is not set");
  EXPECT_EQ(choice.candidates.size(), 7u);
  EXPECT_FALSE(choice.resolver->cluster_spec());
}

TEST(ResolveClusterTest, ErrorsOfWhatWasFoundAreThrown) {
  EXPECT_ERROR(resolve_cluster(Environment({{"TF_CONFIG", ""}}))->cluster_spec(), c10::ValueError, "[TF_CONFIG]");
  Variables variables = kTorchrunFound;
  variables["RANK"] = "2";
  EXPECT_ERROR(resolve_cluster(Environment(variables)), c10::ValueError, "RANK=2");
}

}  // namespace
}  // namespace lockstep
