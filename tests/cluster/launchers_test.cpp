#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolvers/kubernetes.h"
#include "lockstep/cluster/resolvers/mpi.h"
#include "lockstep/cluster/resolvers/sagemaker.h"
#include "lockstep/cluster/resolvers/tf_config.h"
#include "lockstep/cluster/resolvers/torchrun.h"
#include "lockstep/cluster/resolvers/tpu.h"
#include "lockstep/cluster/resolvers/union.h"
#include "tests/cluster/expect_error.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using tests::port_of;
using tests::Variables;
using tests::with;

const Variables kTorchrun{{"RANK", "1"},         {"WORLD_SIZE", "3"},
                          {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"},
                          {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"}};

TEST(TorchrunClusterResolverTest, KnowsRanksAndTheFirstWorkersAddress) {
  const TorchrunClusterResolver resolver{Environment(kTorchrun)};
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("n1:29500", "", ""));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.local_task(), (LocalTask{1, 2}));
  const auto place = worker_place(resolver);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->index, 1);
  EXPECT_EQ(place->num_workers, 3);
  EXPECT_EQ(place->coordinator, "n1:29500");
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"task id", "1", "RANK"}));
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"worker 0", "n1:29500", "MASTER_ADDR, MASTER_PORT"}));
}

TEST(TorchrunClusterResolverTest, LeavesItsPortToTheAgent) {
  const auto address = [](const Variables& more) {
    return TorchrunClusterResolver(Environment(with(kTorchrun, more))).cluster_spec().task_address("worker", 0);
  };
  EXPECT_EQ(address({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), "n1:29501");
  EXPECT_EQ(address({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}), "n1:29500");
  EXPECT_EQ(address({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}}), "n1:65534");
  EXPECT_EQ(address({{"LOCKSTEP_COORDINATOR", "n9:77"}}), "n9:77");
  EXPECT_EQ(address({{"MASTER_ADDR", "fd00::2"}}), "[fd00::2]:29500");
}

TEST(TorchrunClusterResolverTest, SaysWhatIsWrong) {
  const auto make = [](const Variables& more) { TorchrunClusterResolver(Environment(with(kTorchrun, more))); };
  EXPECT_ERROR(TorchrunClusterResolver(Environment(Variables{})), ContextError, "name=RANK");
  EXPECT_ERROR(make({{"RANK", "3"}}), c10::ValueError, "RANK=3, WORLD_SIZE=3");
  EXPECT_ERROR(make({{"RANK", "one"}}), c10::ValueError, "RANK=\"one\"");
  EXPECT_ERROR(make({{"RANK", "-1"}}), c10::ValueError, "RANK=\"-1\"");
  EXPECT_ERROR(make({{"WORLD_SIZE", "0"}}), c10::ValueError, "at least 1");
  EXPECT_ERROR(make({{"MASTER_ADDR", ""}}), ContextError, "name=MASTER_ADDR");
  EXPECT_ERROR(make({{"MASTER_PORT", "70000"}}), c10::ValueError, "MASTER_PORT=70000");
  EXPECT_ERROR(make({{"LOCKSTEP_COORDINATOR", "n1"}}), c10::ValueError, "must be host:port");
  EXPECT_ERROR(make({{"LOCKSTEP_COORDINATOR", "n1:99999"}}), c10::ValueError, "at most 65535");
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "376242177"}};

TEST(MPIClusterResolverTest, MeetsOnOneMachineAtThePortOfTheLaunch) {
  const MPIClusterResolver first{Environment(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}))};
  const MPIClusterResolver second{Environment(kOpenMpi)};
  const std::string address = first.cluster_spec().task_address("worker", 0);
  EXPECT_EQ(second.cluster_spec(), first.cluster_spec());
  EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
  EXPECT_GE(port_of(address), 20000);
  EXPECT_LT(port_of(address), 32768);
  const MPIClusterResolver another{Environment(with(kOpenMpi, {{"PMIX_NAMESPACE", "376242178"}}))};
  EXPECT_NE(another.cluster_spec(), first.cluster_spec());
  EXPECT_EQ(second.task_id(), 1);
  EXPECT_EQ(second.local_task(), (LocalTask{1, 2}));
}

TEST(MPIClusterResolverTest, TakesTheMachineOfMpirunWhereRank0IsThere) {
  const std::string uri = "249757696.0;tcp://192.0.2.2,10.0.0.2:44345;tcp6://[fd00::2]:50061";
  const Variables two_machines = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_MCA_orte_hnp_uri", uri}});
  const MPIClusterResolver resolver{Environment(two_machines)};
  EXPECT_TRUE(resolver.cluster_spec().task_address("worker", 0).starts_with("192.0.2.2:"));
  const Variables elsewhere =
      with(two_machines, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_MCA_orte_local_daemon_uri", "249757696.1;tcp://n2:1"}});
  EXPECT_ERROR(MPIClusterResolver(Environment(elsewhere)), ContextError, "LOCKSTEP_COORDINATOR");
}

TEST(MPIClusterResolverTest, ReadsOtherLaunchers) {
  const auto id_and_size = [](const Variables& variables) {
    const MPIClusterResolver resolver{Environment(with(variables, {{"LOCKSTEP_COORDINATOR", "n1:7"}}))};
    EXPECT_EQ(resolver.cluster_spec().task_address("worker", 0), "n1:7");
    return std::pair(*resolver.task_id(), resolver.cluster_spec().num_tasks("worker"));
  };
  EXPECT_EQ(id_and_size({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}), std::pair(2, 4));
  EXPECT_EQ(id_and_size({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}), std::pair(1, 2));
  EXPECT_EQ(id_and_size({{"PMIX_RANK", "3"}, {"WORLD_SIZE", "5"}}), std::pair(3, 5));
}

TEST(MPIClusterResolverTest, TakesTheMasterWithOrWithoutAPort) {
  const Variables hydra{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "job"}, {"MASTER_ADDR", "n1"}};
  const auto address = [](const Variables& variables) {
    return MPIClusterResolver(Environment(variables)).cluster_spec().task_address("worker", 0);
  };
  EXPECT_EQ(address(with(hydra, {{"MASTER_PORT", "5000"}})), "n1:5000");
  EXPECT_TRUE(address(hydra).starts_with("n1:"));
}

TEST(MPIClusterResolverTest, SaysWhatIsMissing) {
  EXPECT_ERROR(MPIClusterResolver(Environment(Variables{})), ContextError, "start the program with mpirun");
  EXPECT_ERROR(MPIClusterResolver(Environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})), ContextError,
               "does not say where rank 0 is");
  EXPECT_ERROR(MPIClusterResolver(Environment({{"PMI_RANK", "0"}})), ContextError, "name=PMI_SIZE");
  const Variables no_id{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_ERROR(MPIClusterResolver(Environment(no_id)), ContextError, "no id");
}

const Variables kIndexedJob{{"JOB_COMPLETION_INDEX", "1"},
                            {"LOCKSTEP_NUM_WORKERS", "3"},
                            {"LOCKSTEP_SERVICE", "train-workers"},
                            {"HOSTNAME", "train-1"}};

KubernetesOptions indexed_job(const Variables& more = {}) {
  KubernetesOptions options;
  options.variables = Environment(with(kIndexedJob, more));
  return options;
}

TEST(KubernetesClusterResolverTest, IndexedJobsNeedNobody) {
  const KubernetesClusterResolver resolver(indexed_job());
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"),
              ElementsAre("train-0.train-workers:8470", "train-1.train-workers:8470", "train-2.train-workers:8470"));
  EXPECT_EQ(resolver.task_id(), 1);
}

TEST(KubernetesClusterResolverTest, SaysWhatAnIndexedJobLacks) {
  EXPECT_ERROR(KubernetesClusterResolver(indexed_job({{"LOCKSTEP_SERVICE", ""}})), ContextError, "LOCKSTEP_SERVICE");
  EXPECT_ERROR(KubernetesClusterResolver(indexed_job({{"HOSTNAME", "train-x"}})), c10::ValueError, "train-x");
  EXPECT_ERROR(KubernetesClusterResolver(indexed_job({{"LOCKSTEP_NUM_WORKERS", "1"}})), c10::ValueError,
               "LOCKSTEP_NUM_WORKERS=1");
}

TEST(SageMakerClusterResolverTest, SaysWhatIsWrong) {
  const auto make = [](const Variables& variables) {
    SageMakerOptions options;
    options.variables = Environment(variables);
    SageMakerClusterResolver resolver(options);
  };
  EXPECT_ERROR(make({{"SM_CURRENT_HOST", "a"}}), ContextError, "name=SM_HOSTS");
  EXPECT_ERROR(make({{"SM_HOSTS", "[\"a\"]"}}), ContextError, "name=SM_CURRENT_HOST");
  EXPECT_ERROR(make({{"SM_HOSTS", "a,b"}, {"SM_CURRENT_HOST", "a"}}), c10::ValueError, "[SM_HOSTS]");
  EXPECT_ERROR(make({{"SM_HOSTS", "[1]"}, {"SM_CURRENT_HOST", "a"}}), c10::ValueError, "host=1");
}

TEST(SageMakerClusterResolverTest, ArgumentsReplaceTheVariables) {
  SageMakerOptions options;
  options.variables = Environment({{"SM_HOSTS", R"(["a", "b"])"}, {"SM_CURRENT_HOST", "a"}});
  options.task_id = 1;
  options.rpc_layer = "grpc";
  const SageMakerClusterResolver resolver(options);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "grpc://b:2223");
  EXPECT_EQ(resolver.master("worker", 0, "test"), "test://a:2223");
}

TFConfigClusterResolver tf_config(const std::string& text) {
  TFConfigOptions options;
  options.variables = Environment({{"TF_CONFIG", text}});
  return TFConfigClusterResolver(options);
}

TEST(TFConfigClusterResolverTest, SaysWhatIsWrong) {
  EXPECT_ERROR(tf_config("").cluster_spec(), c10::ValueError, "it is set and empty");
  EXPECT_ERROR(tf_config("{\"cluster\": ").cluster_spec(), c10::ValueError, "[TF_CONFIG] the text must be JSON: byte=");
  EXPECT_ERROR(tf_config("3").task_type(), c10::TypeError, "must be a JSON object");
  EXPECT_ERROR(tf_config(R"({"cluster": {"worker": "a:1"}})").cluster_spec(), c10::TypeError, "[TF_CONFIG]");
  EXPECT_ERROR(tf_config(R"({"task": []})").task_id(), c10::TypeError, "task=[]");
  EXPECT_ERROR(tf_config(R"({"task": {"index": "x"}})").task_id(), c10::ValueError, "index=\"x\"");
  EXPECT_ERROR(tf_config(R"({"task": {"index": 1e30}})").task_id(), c10::ValueError, "too large");
  EXPECT_ERROR(tf_config(R"({"task": {"type": []}})").task_type(), c10::TypeError, "type=[]");
}

TEST(TFConfigClusterResolverTest, ReadsTheVariableAfresh) {
  TFConfigOptions options;
  options.variables = Environment({{"TF_CONFIG", R"({"task": {"type": "worker", "index": "2"}})"}});
  const TFConfigClusterResolver resolver(options);
  EXPECT_EQ(resolver.task_id(), 2);
  options.variables.set("TF_CONFIG", R"({"task": {"index": 3}})");
  EXPECT_EQ(resolver.task_id(), 3);
  EXPECT_EQ(resolver.task_type(), std::nullopt);
}

TEST(TFConfigClusterResolverTest, FactsTellOptionsFromTheVariable) {
  TFConfigOptions options;
  options.task_id = 0;
  options.variables =
      Environment({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 9}})"}});
  EXPECT_THAT(TFConfigClusterResolver(options).facts(),
              ElementsAre(ClusterFact{"task type", "worker", "TF_CONFIG"},
                          ClusterFact{"task id", "0", "argument of the resolver"},
                          ClusterFact{"worker 0", "a:1", "TF_CONFIG"}));
}

TEST(UnionClusterResolverTest, RejectsNothing) {
  EXPECT_ERROR(UnionClusterResolver({}), c10::ValueError, "at least one");
  EXPECT_ERROR(UnionClusterResolver({nullptr}), c10::ValueError, "null");
}

TEST(TPUClusterResolverTest, RejectsEmptyAddresses) {
  TPUOptions options;
  options.variables = Environment(Variables{});
  options.tpu = "grpc://1.2.3.4,,grpc://1.2.3.5";
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "is empty");
}

TEST(TPUClusterResolverTest, ACoordinatorIsAJobWithAnAddress) {
  TPUOptions options;
  options.tpu = "grpc://1.2.3.4";
  options.coordinator_name = "coordinator";
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "coordinator_address=\"\"");
  options.coordinator_name = "";
  options.coordinator_address = "c:9";
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "coordinator_name=\"\"");
  options.coordinator_name = options.job_name;
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "a job of its own");
}

TEST(TPUClusterResolverTest, AddsACoordinator) {
  TPUOptions options;
  options.tpu = "grpc://[fd00::1],grpc://1.2.3.5:1";
  options.coordinator_name = "coordinator";
  options.coordinator_address = "c:9";
  const TPUClusterResolver resolver(options);
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("[fd00::1]:8470", "1.2.3.5:1"));
  EXPECT_EQ(resolver.cluster_spec().task_address("coordinator", 0), "c:9");
}

}  // namespace
}  // namespace lockstep
