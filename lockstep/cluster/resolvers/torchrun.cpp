#include "lockstep/cluster/resolvers/torchrun.h"

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"

namespace lockstep {
namespace {

constexpr const char* kStartWithTorchrun =
    "start the program with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";

detail::SourcedAddress coordinator_of(const Environment& variables) {
  if (const auto given = detail::given_coordinator(variables)) return *given;
  const auto host = variables.given("MASTER_ADDR");
  LOCKSTEP_CHECK_CONTEXT(host.has_value(), "[environment] the variable is not set: name=MASTER_ADDR; ",
                         kStartWithTorchrun);
  const int port = detail::required_number(variables, "MASTER_PORT", kStartWithTorchrun, 1);
  LOCKSTEP_CHECK_VALUE(port <= 65535, "[environment] a port is at most 65535: MASTER_PORT=", port);
  const std::string agent = variables.given("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  if (agent != "True" && agent != "true" && agent != "1") {
    return {detail::host_and_port(*host, port), "MASTER_ADDR, MASTER_PORT"};
  }
  return {detail::host_and_port(*host, port < 65535 ? port + 1 : port - 1),
          "MASTER_ADDR, port beside MASTER_PORT, on which torchrun listens"};
}

detail::RankedJob torchrun_job(const Environment& variables) {
  detail::RankedJob job;
  job.launcher = "torchrun";
  job.rank_source = "RANK";
  job.size_source = "WORLD_SIZE";
  job.rank = detail::required_number(variables, job.rank_source, kStartWithTorchrun);
  job.size = detail::required_number(variables, job.size_source, kStartWithTorchrun, 1);
  const auto local_rank = detail::optional_number(variables, "LOCAL_RANK");
  const auto local_size = detail::optional_number(variables, "LOCAL_WORLD_SIZE", 1);
  if (local_rank && local_size) job.local_task = LocalTask{*local_rank, *local_size};
  job.local_source = "LOCAL_RANK, LOCAL_WORLD_SIZE";
  job.coordinator = coordinator_of(variables);
  return job;
}

}  // namespace

TorchrunClusterResolver::TorchrunClusterResolver(const Environment& variables)
    : FixedClusterResolver(detail::resolution_of(torchrun_job(variables))) {}

}  // namespace lockstep
