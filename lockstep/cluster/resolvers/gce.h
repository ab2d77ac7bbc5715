#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/cluster/fixed_resolver.h"
#include "lockstep/cluster/http.h"

namespace lockstep {

struct LOCKSTEP_API GCEOptions {
  std::string project{};
  std::string zone{};
  std::string instance_group{};
  /// Port of every task.
  int port = 0;
  std::string task_type = "worker";
  int task_id = 0;
  std::string rpc_layer = "grpc";
  std::string api = "https://compute.googleapis.com/compute/v1";
  /// Address of the metadata service, which issues tokens of the machine's account.
  std::string metadata = "http://metadata.google.internal";
  HttpClient client = http_request;
};

/// The running machines of an instance group of Google Compute Engine, ordered by address as text, all of one job.
///
/// The constructor queries the API with the machine's service account. It throws `c10::ValueError` where an option is
/// missing, and `ContextError` where the API refuses or does not answer.
class LOCKSTEP_API GCEClusterResolver : public FixedClusterResolver {
 public:
  explicit GCEClusterResolver(const GCEOptions& options);
};

}  // namespace lockstep
