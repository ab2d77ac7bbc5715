#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"
#include "lockstep/cluster/http.h"

namespace lockstep {

struct LOCKSTEP_API TPUOptions {
  /// Name of the TPU, "local", or its addresses: "grpc://10.0.0.1:8470,grpc://10.0.0.2:8470". Empty: the variable
  /// KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, else TPU_NAME, else "tpu_node_name" of TPU_CONFIG, else the slice that this
  /// machine belongs to.
  std::string tpu{};
  /// Where a name is looked up. Empty: those of TPU_CONFIG where the name is from there, else those of this machine.
  std::string zone{};
  std::string project{};
  std::string job_name = "worker";
  /// An additional job of one task, in the cluster of a TPU that has one ("local" has none). Both or neither.
  std::string coordinator_name{};
  std::string coordinator_address{};
  /// Address of the Cloud TPU service; the document at TPU_API_DISCOVERY_URL, where that is set, names another.
  std::string api = "https://tpu.googleapis.com/v1";
  /// Address of the machine's metadata service. Empty: http:// and GCE_METADATA_IP, else metadata.google.internal.
  std::string metadata{};
  HttpClient client = http_request;
  Environment variables{};
  /// Root of the machine's files, in which chips are counted.
  std::string machine_root = "/";
};

/// The hosts of a TPU.
///
///   - "local" is the TPU of this machine: no cluster.
///   - Addresses without a port have port 8470.
///   - Without a name, the environment of a TPU VM or of a pod of Kubernetes describes the slice: workers are listed in
///     TPU_PROCESS_ADDRESSES or TPU_WORKER_HOSTNAMES, and CLOUD_TPU_TASK_ID or TPU_WORKER_ID is this one; a single
///     worker is "local". This also holds for a name in TPU_NAME or TPU_CONFIG where such a list is set. With
///     MEGASCALE_NUM_SLICES slices, the workers of all slices are numbered consecutively.
///   - Another name is looked up in Google's cloud, as the machine's own account; the TPU must be READY. Where
///     TPU_SKIP_MDS_QUERY is set, nothing is queried.
///
/// `num_accelerators` has the TPU devices of each task: for "local" and for workers of the environment those that are
/// in this machine, for names those of the type; 0 where unknown.
///
/// The constructor throws `c10::ValueError` where no TPU is named, a coordinator is incomplete or variables are wrong,
/// `c10::NotImplementedError` for several names, `ContextError` where a name cannot be looked up.
class LOCKSTEP_API TPUClusterResolver : public FixedClusterResolver {
 public:
  explicit TPUClusterResolver(const TPUOptions& options = {});
};

}  // namespace lockstep
