#include "lockstep/cluster/resolvers/tpu.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/google_api.h"
#include "lockstep/cluster/launcher.h"

namespace lockstep {
namespace {

using detail::Json;

constexpr const char* kScheme = "grpc://";
constexpr int kPort = 8470;

/// The hosts, where they are from, and what is known of their cores.
struct TPUHosts {
  std::vector<std::string> addresses;
  std::string source;
  std::optional<int> cores_per_host;
};

/// Returns the TPU's name or addresses, and what said so.
std::pair<std::string, std::string> tpu_of(const TPUOptions& options) {
  if (!options.tpu.empty()) return {options.tpu, "argument of the resolver"};
  for (const char* name : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    if (auto text = options.variables.given(name)) return {*text, name};
  }
  LOCKSTEP_CHECK_VALUE(
      false,
      "[TPUClusterResolver] a TPU must be named: none is; give TPUOptions::tpu, or set TPU_NAME to its "
      "name, to \"local\", or to its addresses grpc://host:port,...");
  return {};
}

std::string with_port(std::string address) {
  if (address.starts_with(kScheme)) address.erase(0, std::string_view(kScheme).size());
  const size_t after_brackets = address.find(']') == std::string::npos ? 0 : address.find(']');
  return address.find(':', after_brackets) == std::string::npos ? detail::host_and_port(address, kPort) : address;
}

TPUHosts hosts_of_text(const std::string& text, const std::string& source) {
  TPUHosts hosts{{}, source, std::nullopt};
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    LOCKSTEP_CHECK_VALUE(end > start, "[TPUClusterResolver] an address is empty: tpu=\"", text, "\"");
    hosts.addresses.push_back(with_port(text.substr(start, end - start)));
    start = end + 1;
  }
  return hosts;
}

/// Reads the number behind the last dash, or all of a text without one: 8 of "v3-8".
std::optional<int> last_number(const std::string& text) {
  const std::string digits = text.substr(text.rfind('-') + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && value > 0;
  return is_number ? std::optional(value) : std::nullopt;
}

/// Returns the port of an endpoint, which services write as a number or as text.
int port_of(const Json& endpoint) {
  if (endpoint.is_object() && endpoint.contains("port") && endpoint["port"].is_number_integer())
    return endpoint["port"];
  return last_number(detail::text_at(endpoint, {"port"})).value_or(kPort);
}

TPUHosts looked_up(const TPUOptions& options, const std::string& name) {
  const detail::GoogleApi api(options.client, options.metadata);
  const std::string project = options.project.empty() ? api.project() : options.project;
  const std::string zone = options.zone.empty() ? api.zone() : options.zone;
  const std::string path = "projects/" + project + "/locations/" + zone + "/nodes/" + name;
  const Json node = api.ask(options.api + "/" + path);
  const std::string state = detail::text_at(node, {"state"});
  LOCKSTEP_CHECK_CONTEXT(state == "READY", "[TPUClusterResolver] the TPU must be READY: tpu=", path, ", state=", state,
                         "; wait for it, or start it");
  TPUHosts hosts{{}, "Cloud TPU API, " + path, std::nullopt};
  for (const Json& endpoint : node.value("networkEndpoints", Json::array())) {
    const std::string address = detail::text_at(endpoint, {"ipAddress"});
    if (!address.empty()) hosts.addresses.push_back(detail::host_and_port(address, port_of(endpoint)));
  }
  if (hosts.addresses.empty() && node.contains("ipAddress")) {
    hosts.addresses.push_back(detail::host_and_port(detail::text_at(node, {"ipAddress"}), port_of(node)));
  }
  LOCKSTEP_CHECK_CONTEXT(!hosts.addresses.empty(), "[TPUClusterResolver] the TPU has no address: tpu=", path);
  const int num_hosts = static_cast<int>(hosts.addresses.size());
  if (const auto cores = last_number(detail::text_at(node, {"acceleratorType"}))) {
    LOCKSTEP_CHECK_CONTEXT(*cores % num_hosts == 0,
                           "[TPUClusterResolver] all hosts of a TPU must have the same number of cores: cores=", *cores,
                           ", hosts=", num_hosts);
    hosts.cores_per_host = *cores / num_hosts;
  }
  return hosts;
}

Resolution resolve(const TPUOptions& options) {
  const auto [tpu, source] = tpu_of(options);
  Resolution result;
  result.task_type = options.job_name;
  result.task_id = 0;
  result.rpc_layer = "grpc";
  result.facts = {{"TPU", tpu, source}};
  if (tpu == "local") return result;
  const TPUHosts hosts = tpu.starts_with(kScheme) ? hosts_of_text(tpu, source) : looked_up(options, tpu);
  std::map<std::string, TaskAddresses> jobs{{options.job_name, hosts.addresses}};
  if (!options.coordinator_name.empty() && !options.coordinator_address.empty()) {
    jobs.emplace(options.coordinator_name, TaskAddresses{options.coordinator_address});
  }
  result.cluster = ClusterSpec(std::move(jobs));
  if (hosts.cores_per_host) result.num_accelerators = std::map<std::string, int>{{"TPU", *hosts.cores_per_host}};
  const auto tasks = detail::task_facts(result.cluster, hosts.source);
  result.facts.insert(result.facts.end(), tasks.begin(), tasks.end());
  return result;
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(const TPUOptions& options) : FixedClusterResolver(resolve(options)) {}

}  // namespace lockstep
