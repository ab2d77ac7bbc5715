#include "lockstep/cluster/tpu/cloud_node.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/service.h"
#include "lockstep/cluster/tpu/accelerator_type.h"

namespace lockstep::tpu {
namespace {

using detail::Json;

std::optional<int> number_in(const std::string& digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && value > 0;
  return is_number ? std::optional(value) : std::nullopt;
}

/// Returns the port of an endpoint, which services write as a number or as text.
int port_of(const Json& endpoint, int default_port) {
  if (endpoint.is_object() && endpoint.contains("port") && endpoint["port"].is_number_integer())
    return endpoint["port"];
  return number_in(detail::text_at(endpoint, {"port"})).value_or(default_port);
}

/// Returns where the service is that a discovery document describes.
std::string discovered_api(const CloudNodeQuery& query) {
  detail::check_can_carry_token(query.discovery_url);  // whoever can change the document gets the token
  HttpRequest request;
  request.url = query.discovery_url;
  const Json document = detail::request_json(query.client, request, detail::service_deadline());
  const std::string root = detail::text_at(document, {"rootUrl"});
  LOCKSTEP_CHECK_CONTEXT(!root.empty(),
                         "[TPUClusterResolver] the document must say where the service is (rootUrl, version): "
                         "TPU_API_DISCOVERY_URL=",
                         query.discovery_url);
  const std::string version = detail::text_at(document, {"version"});
  return root + (root.ends_with('/') ? "" : "/") + (version.empty() ? "v1" : version);
}

std::vector<std::string> addresses_of(const Json& node, int default_port) {
  std::vector<std::string> addresses;
  for (const Json& endpoint : node.value("networkEndpoints", Json::array())) {
    const std::string address = detail::text_at(endpoint, {"ipAddress"});
    if (!address.empty()) addresses.push_back(detail::host_and_port(address, port_of(endpoint, default_port)));
  }
  if (addresses.empty() && node.contains("ipAddress")) {
    addresses.push_back(detail::host_and_port(detail::text_at(node, {"ipAddress"}), port_of(node, default_port)));
  }
  return addresses;
}

std::optional<int> devices_per_host(const Json& node, int num_hosts) {
  const auto type = find_accelerator_type(detail::text_at(node, {"acceleratorType"}));
  if (!type) return std::nullopt;
  LOCKSTEP_CHECK_CONTEXT(type->num_devices() % num_hosts == 0,
                         "[TPUClusterResolver] all hosts of a TPU must have the same number of cores: cores=",
                         type->num_devices(), ", hosts=", num_hosts);
  return type->num_devices() / num_hosts;
}

}  // namespace

CloudNode find_cloud_node(const CloudNodeQuery& query, int default_port) {
  const detail::GoogleApi service(query.client, query.metadata);
  const std::string project = query.project.empty() ? service.project() : query.project;
  const std::string zone = query.zone.empty() ? service.zone() : query.zone;
  const std::string path = "projects/" + project + "/locations/" + zone + "/nodes/" + query.name;
  const std::string api = query.discovery_url.empty() ? query.api : discovered_api(query);
  const Json node = service.ask(api + "/" + path);
  const std::string state = detail::text_at(node, {"state"});
  LOCKSTEP_CHECK_CONTEXT(state == "READY", "[TPUClusterResolver] the TPU must be READY: tpu=", path, ", state=", state,
                         "; wait for it, or start it");
  CloudNode result{addresses_of(node, default_port), "Cloud TPU API, " + path, std::nullopt};
  LOCKSTEP_CHECK_CONTEXT(!result.addresses.empty(), "[TPUClusterResolver] the TPU has no address: tpu=", path);
  result.devices_per_host = devices_per_host(node, static_cast<int>(result.addresses.size()));
  return result;
}

}  // namespace lockstep::tpu
