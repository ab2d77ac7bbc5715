#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"
#include "lockstep/cluster/http.h"

namespace lockstep {

struct LOCKSTEP_API KubernetesOptions {
  /// The label selectors of the pods of each job. Used for queries to the API.
  std::map<std::string, std::vector<std::string>> job_to_label_mapping{{"worker", {"job-name=tensorflow"}}};
  /// Port of every task.
  int port = 8470;
  std::string rpc_layer = "grpc";
  /// This pod's task; by default that of the pod with this machine's name.
  TaskType task_type{};
  TaskId task_id{};
  /// Address of the API; empty: https:// of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
  std::string api{};
  /// Folder of the pod's service account: the files token, ca.crt and namespace.
  std::string account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  /// How long to wait until all pods run, and for an API that is overloaded. 0: pods must be running.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  HttpClient client = http_request;
  Environment variables{};
};

/// Pods of Kubernetes.
///
/// An indexed Job needs no query: the pod's index is in JOB_COMPLETION_INDEX, and the Job's manifest gives the
/// number of pods in LOCKSTEP_NUM_WORKERS and the headless service in LOCKSTEP_SERVICE. Pod i is at
/// "JOB-i.SERVICE:port", where JOB-i is its HOSTNAME.
///
/// Otherwise the API is queried with the pod's service account, which must have the right to list pods of its
/// namespace: tasks are the pods with the given labels, ordered by name with numbers by value, at their own addresses.
/// The constructor waits until all of them run; where LOCKSTEP_NUM_WORKERS is set, until there are so many, and no
/// others. Pods that have ended (Succeeded, Failed) are an error at once: they take part in nothing. Answers 429 and
/// 503 are repeated.
///
/// The constructor throws `ContextError` where variables or files are missing, the API refuses, a pod has ended, or a
/// pod does not run within the timeout.
class LOCKSTEP_API KubernetesClusterResolver : public FixedClusterResolver {
 public:
  explicit KubernetesClusterResolver(const KubernetesOptions& options = {});
};

}  // namespace lockstep
