#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/http.h"

/// A TPU in Google Cloud, by name.
namespace lockstep::tpu {

struct CloudNodeQuery {
  std::string name{};
  /// Empty: those of this machine.
  std::string project{};
  std::string zone{};
  /// Address of the service; where `discovery_url` is given, that document's.
  std::string api{};
  std::string discovery_url{};
  /// Address of the machine's metadata service.
  std::string metadata{};
  HttpClient client{};
};

struct CloudNode {
  /// "host:port", in order.
  std::vector<std::string> addresses{};
  /// The source of the addresses.
  std::string source{};
  /// TPU devices of each host, where the node's type determines it.
  std::optional<int> devices_per_host{};
};

/// Queries the Cloud TPU service with the machine's service account. Endpoints without a port have `default_port`.
/// Throws `ContextError` where there is no such TPU, or it is not READY.
CloudNode find_cloud_node(const CloudNodeQuery& query, int default_port);

}  // namespace lockstep::tpu
