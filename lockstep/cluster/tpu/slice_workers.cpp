#include "lockstep/cluster/tpu/slice_workers.h"

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"

namespace lockstep::tpu {
namespace {

constexpr const char* kProcesses = "TPU_PROCESS_ADDRESSES";
constexpr const char* kHosts = "TPU_WORKER_HOSTNAMES";

SliceWorkers split(const std::string& variable, const std::string& text) {
  SliceWorkers workers{lockstep::detail::split_at_commas(text), variable};
  for (const std::string& address : workers.addresses) {
    LOCKSTEP_CHECK_VALUE(!address.empty(), "[environment] a worker has no name: ", variable, "=\"", text, "\"");
  }
  return workers;
}

}  // namespace

std::optional<SliceWorkers> slice_workers(const Environment& variables) {
  for (const char* variable : {kProcesses, kHosts}) {
    if (const auto text = variables.given(variable)) return split(variable, *text);
  }
  return std::nullopt;
}

SourcedNumber slice_worker_index(const Environment& variables, const SliceWorkers& workers) {
  const bool counts_processes = workers.source == kProcesses && variables.given("CLOUD_TPU_TASK_ID").has_value();
  const std::string variable = counts_processes ? "CLOUD_TPU_TASK_ID" : "TPU_WORKER_ID";
  const int index = detail::required_number(variables, variable,
                                            "it says which of the workers in " + workers.source + " this process is");
  LOCKSTEP_CHECK_VALUE(index < static_cast<int>(workers.addresses.size()),
                       "[environment] there is no such worker: ", variable, "=", index, ", workers in ", workers.source,
                       "=", workers.addresses.size());
  return {index, variable};
}

}  // namespace lockstep::tpu
