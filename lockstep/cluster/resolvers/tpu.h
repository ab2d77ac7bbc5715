#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"
#include "lockstep/cluster/http.h"

namespace lockstep {

struct LOCKSTEP_API TPUOptions {
  /// Name of the TPU, "local", or its addresses: "grpc://10.0.0.1:8470,grpc://10.0.0.2:8470". Empty: the variable
  /// KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, else TPU_NAME.
  std::string tpu{};
  /// Empty: those of this machine, where a name is looked up.
  std::string zone{};
  std::string project{};
  std::string job_name = "worker";
  /// One more job of one task, where both are given.
  std::string coordinator_name{};
  std::string coordinator_address{};
  std::string api = "https://tpu.googleapis.com/v1";
  std::string metadata = "http://metadata.google.internal";
  HttpClient client = http_request;
  Environment variables{};
};

/// The hosts of a TPU. "local" is the TPU of this machine: no cluster. Addresses without a port have 8470. A name is
/// looked up in Google's cloud, as the machine's own account; the TPU must be READY.
///
/// The constructor throws `c10::ValueError` where no TPU is named, `ContextError` where it cannot be looked up.
class LOCKSTEP_API TPUClusterResolver : public FixedClusterResolver {
 public:
  explicit TPUClusterResolver(const TPUOptions& options = {});
};

}  // namespace lockstep
