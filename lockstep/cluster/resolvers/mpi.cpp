#include "lockstep/cluster/resolvers/mpi.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"

namespace lockstep {
namespace {

constexpr const char* kStartWithMpirun = "start the program with mpirun";

/// The variables of one launcher. Each local pair may be missing.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr std::array kLaunchers{
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Launcher{"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
             "MV2_COMM_WORLD_LOCAL_SIZE"},
    Launcher{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // PMIx has no variable for the size: whoever starts it gives WORLD_SIZE.
    Launcher{"PMIx", "PMIX_RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

/// Variables that are the same for all ranks of one launch, on every machine, and differ from launch to launch.
constexpr std::array<const char*, 4> kLaunchIds{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
                                                "SLURM_JOB_ID"};

const Launcher& launcher_of(const Environment& variables) {
  const auto* found = std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Launcher& launcher) {
    return variables.given(launcher.rank).has_value();
  });
  LOCKSTEP_CHECK_CONTEXT(found != kLaunchers.end(),
                         "[MPIClusterResolver] no launcher's variables are set: looked for OMPI_COMM_WORLD_RANK, "
                         "MV2_COMM_WORLD_RANK, PMI_RANK and PMIX_RANK; ",
                         kStartWithMpirun);
  return *found;
}

/// Returns a port that all ranks make of the same variable, and its name.
std::pair<int, std::string> port_of_launch(const Environment& variables) {
  for (const char* name : kLaunchIds) {
    if (const auto id = variables.given(name)) return {detail::port_of_job(*id), name};
  }
  LOCKSTEP_THROW(ContextError,
                 "[MPIClusterResolver] the launcher gives the launch no id to make a port of; set "
                 "LOCKSTEP_COORDINATOR=host:port, the same for all ranks");
}

/// Returns the first address in "249757696.0;tcp://192.0.2.2,10.0.0.2:44345;tcp6://...".
std::string host_of_uri(const std::string& uri) {
  constexpr std::string_view kScheme = "tcp://";
  const size_t start = uri.find(kScheme);
  if (start == std::string::npos) return "";
  const size_t host = start + kScheme.size();
  return uri.substr(host, uri.find_first_of(",:;", host) - host);
}

/// Returns the host of Open MPI's mpirun, or "". Rank 0 can see that it is not there, and says so for all.
std::string host_of_mpirun(const Environment& variables, int rank) {
  const auto uri = variables.given("OMPI_MCA_orte_hnp_uri");
  if (!uri) return "";
  const bool is_elsewhere = rank == 0 && variables.given("OMPI_MCA_orte_local_daemon_uri").value_or(*uri) != *uri;
  return is_elsewhere ? "" : host_of_uri(*uri);
}

detail::SourcedAddress coordinator_of(const Environment& variables, const detail::RankedJob& job) {
  if (const auto given = detail::given_coordinator(variables)) return *given;
  const auto master = variables.given("MASTER_ADDR");
  const auto master_port = detail::optional_number(variables, "MASTER_PORT", 1);
  if (master && master_port) return {detail::host_and_port(*master, *master_port), "MASTER_ADDR, MASTER_PORT"};
  const bool is_one_machine = job.local_task && job.local_task->num_tasks == job.size;
  const std::string mpirun = master || is_one_machine ? "" : host_of_mpirun(variables, job.rank);
  LOCKSTEP_CHECK_CONTEXT(master || is_one_machine || !mpirun.empty(),
                         "[MPIClusterResolver] the launcher does not say where rank 0 is: launcher=", job.launcher,
                         ", ranks=", job.size,
                         "; set LOCKSTEP_COORDINATOR to its host:port, for example mpirun -x "
                         "LOCKSTEP_COORDINATOR=n1:29400");
  const auto [port, id] = port_of_launch(variables);
  if (master) return {detail::host_and_port(*master, port), "MASTER_ADDR, port of " + id};
  if (is_one_machine) return {detail::host_and_port("127.0.0.1", port), "all ranks are here, port of " + id};
  return {detail::host_and_port(mpirun, port), "OMPI_MCA_orte_hnp_uri, port of " + id};
}

detail::RankedJob mpi_job(const Environment& variables) {
  const Launcher& launcher = launcher_of(variables);
  detail::RankedJob job;
  job.launcher = launcher.name;
  job.rank_source = launcher.rank;
  job.size_source = launcher.size;
  job.rank = detail::required_number(variables, launcher.rank, kStartWithMpirun);
  job.size = detail::required_number(variables, launcher.size, c10::str(kStartWithMpirun, ", or set it"), 1);
  const auto local_rank = detail::optional_number(variables, launcher.local_rank);
  const auto local_size = detail::optional_number(variables, launcher.local_size, 1);
  if (local_rank && local_size) job.local_task = LocalTask{*local_rank, *local_size};
  job.local_source = c10::str(launcher.local_rank, ", ", launcher.local_size);
  job.coordinator = coordinator_of(variables, job);
  return job;
}

}  // namespace

MPIClusterResolver::MPIClusterResolver(const Environment& variables)
    : FixedClusterResolver(detail::resolution_of(mpi_job(variables))) {}

}  // namespace lockstep
