#include "lockstep/cluster/resolve_cluster.h"

#include <array>
#include <initializer_list>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolvers/kubernetes.h"
#include "lockstep/cluster/resolvers/mpi.h"
#include "lockstep/cluster/resolvers/sagemaker.h"
#include "lockstep/cluster/resolvers/slurm.h"
#include "lockstep/cluster/resolvers/tf_config.h"
#include "lockstep/cluster/resolvers/torchrun.h"

namespace lockstep {
namespace {

struct Verdict {
  bool fits = false;
  std::string reason;
};

/// A way to describe a cluster: whether it is used here, and its resolver.
struct Description {
  const char* name;
  Verdict (*look)(const Environment&);
  std::shared_ptr<ClusterResolver> (*make)(const Environment&);
};

/// Fits where all variables are set, and `size` to a number above 1.
Verdict look_for(const Environment& variables, std::initializer_list<const char*> names, const char* size) {
  for (const char* name : names) {
    if (!variables.given(name)) return {false, c10::str(name, " is not set")};
  }
  const auto num_tasks = detail::optional_number(variables, size);
  if (!num_tasks) return {false, c10::str(size, " is not set")};
  return {*num_tasks > 1, c10::str(size, "=", *num_tasks, *num_tasks > 1 ? "" : ": one task alone is no cluster")};
}

Verdict look_for_tf_config(const Environment& variables) {
  const bool is_set = variables.get("TF_CONFIG").has_value();
  return {is_set, is_set ? "TF_CONFIG is set" : "TF_CONFIG is not set"};
}

Verdict look_for_torchrun(const Environment& variables) {
  return look_for(variables, {"RANK", "MASTER_ADDR", "MASTER_PORT"}, "WORLD_SIZE");
}

// Before Slurm: in an allocation mpirun starts its daemons as a step, whose variables its ranks inherit.
Verdict look_for_open_mpi(const Environment& variables) {
  return look_for(variables, {"OMPI_COMM_WORLD_RANK"}, "OMPI_COMM_WORLD_SIZE");
}

Verdict look_for_slurm(const Environment& variables) {
  return look_for(variables, {"SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"},
                  "SLURM_STEP_NUM_TASKS");
}

Verdict look_for_other_mpi(const Environment& variables) {
  if (variables.given("MV2_COMM_WORLD_RANK")) return look_for(variables, {}, "MV2_COMM_WORLD_SIZE");
  if (variables.given("PMI_RANK")) return look_for(variables, {}, "PMI_SIZE");
  if (variables.given("PMIX_RANK")) return look_for(variables, {}, "WORLD_SIZE");
  return {false, "MV2_COMM_WORLD_RANK, PMI_RANK and PMIX_RANK are not set"};
}

Verdict look_for_indexed_job(const Environment& variables) {
  return look_for(variables, {"JOB_COMPLETION_INDEX"}, "LOCKSTEP_NUM_WORKERS");
}

Verdict look_for_sagemaker(const Environment& variables) {
  for (const char* name : {"SM_HOSTS", "SM_CURRENT_HOST"}) {
    if (!variables.given(name)) return {false, c10::str(name, " is not set")};
  }
  const auto cluster = SageMakerClusterResolver({.variables = variables}).cluster_spec();
  const int num_hosts = task_count(cluster, "worker");
  return {num_hosts > 1, c10::str("SM_HOSTS has ", num_hosts, num_hosts > 1 ? " hosts" : ": one alone is no cluster")};
}

std::shared_ptr<ClusterResolver> make_tf_config(const Environment& variables) {
  return std::make_shared<TFConfigClusterResolver>(TFConfigOptions{.variables = variables});
}

std::shared_ptr<ClusterResolver> make_slurm(const Environment& variables) {
  return std::make_shared<SlurmClusterResolver>(SlurmOptions{.variables = variables});
}

std::shared_ptr<ClusterResolver> make_kubernetes(const Environment& variables) {
  return std::make_shared<KubernetesClusterResolver>(KubernetesOptions{.variables = variables});
}

std::shared_ptr<ClusterResolver> make_sagemaker(const Environment& variables) {
  return std::make_shared<SageMakerClusterResolver>(SageMakerOptions{.variables = variables});
}

/// For resolvers that take nothing but variables.
template <typename Resolver>
std::shared_ptr<ClusterResolver> make(const Environment& variables) {
  return std::make_shared<Resolver>(variables);
}

constexpr std::array kDescriptions{
    Description{"TF_CONFIG", look_for_tf_config, make_tf_config},
    Description{"torchrun", look_for_torchrun, make<TorchrunClusterResolver>},
    Description{"Open MPI", look_for_open_mpi, make<MPIClusterResolver>},
    Description{"Slurm", look_for_slurm, make_slurm},
    Description{"MPI", look_for_other_mpi, make<MPIClusterResolver>},
    Description{"Kubernetes indexed Job", look_for_indexed_job, make_kubernetes},
    Description{"SageMaker", look_for_sagemaker, make_sagemaker},
};

}  // namespace

ClusterChoice choose_cluster(const Environment& variables) {
  ClusterChoice choice;
  for (const Description& description : kDescriptions) {
    const Verdict verdict = description.look(variables);
    choice.candidates.push_back({description.name, verdict.fits, verdict.reason});
    if (verdict.fits) {
      choice.resolver = description.make(variables);
      return choice;
    }
  }
  choice.resolver = make_tf_config(variables);
  return choice;
}

std::shared_ptr<ClusterResolver> resolve_cluster(const Environment& variables) {
  return choose_cluster(variables).resolver;
}

}  // namespace lockstep
