#include "lockstep/cluster/resolvers/gce.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/service.h"

namespace lockstep {
namespace {

using detail::Json;

void check_options(const GCEOptions& options) {
  LOCKSTEP_CHECK_VALUE(!options.project.empty() && !options.zone.empty() && !options.instance_group.empty(),
                       "[GCEClusterResolver] project, zone and instance group must be given: project=\"",
                       options.project, "\", zone=\"", options.zone, "\", instance_group=\"", options.instance_group,
                       "\"");
  LOCKSTEP_CHECK_VALUE(options.port >= 1 && options.port <= 65535,
                       "[GCEClusterResolver] a port is in 1 … 65535: port=", options.port);
}

/// Returns the first internal address of a machine.
std::string address_of(const detail::GoogleApi& api, const std::string& instance_url) {
  const Json instance = api.ask(instance_url);
  const Json interfaces = instance.value("networkInterfaces", Json::array());
  const std::string address = interfaces.empty() ? "" : detail::text_at(interfaces[0], {"networkIP"});
  LOCKSTEP_CHECK_CONTEXT(!address.empty(),
                         "[GCEClusterResolver] the machine has no internal address: url=", instance_url);
  return address;
}

std::vector<std::string> addresses_of(const GCEOptions& options) {
  const detail::GoogleApi api(options.client, options.metadata);
  const std::string zone = options.api + "/projects/" + options.project + "/zones/" + options.zone;
  const std::string list = zone + "/instanceGroups/" + options.instance_group + "/listInstances";
  std::vector<std::string> addresses;
  std::string page;
  do {
    const Json answer = api.ask(page.empty() ? list : list + "?pageToken=" + detail::url_escaped(page),
                                R"({"instanceState": "RUNNING"})");
    for (const Json& item : answer.value("items", Json::array())) {
      const std::string url = detail::text_at(item, {"instance"});
      const std::string name = url.substr(url.rfind('/') + 1);
      addresses.push_back(
          detail::host_and_port(address_of(api, zone + "/instances/" + detail::url_escaped(name)), options.port));
    }
    page = detail::text_at(answer, {"nextPageToken"});
  } while (!page.empty());
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

Resolution resolve(const GCEOptions& options) {
  check_options(options);
  Resolution result;
  result.cluster = ClusterSpec({{options.task_type, addresses_of(options)}});
  result.task_type = options.task_type;
  result.task_id = options.task_id;
  result.rpc_layer = options.rpc_layer;
  result.facts = detail::task_facts(result.cluster, "running machines of instance group " + options.instance_group);
  result.facts.insert(result.facts.begin(), {{"task type", options.task_type, "argument of the resolver"},
                                             {"task id", std::to_string(options.task_id), "argument of the resolver"}});
  return result;
}

}  // namespace

GCEClusterResolver::GCEClusterResolver(const GCEOptions& options) : FixedClusterResolver(resolve(options)) {}

}  // namespace lockstep
