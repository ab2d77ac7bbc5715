#include "lockstep/cluster/resolvers/kubernetes.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/service.h"

namespace lockstep {
namespace {

bool is_decimal_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Removes the digits at the front of a text and returns them without leading zeros.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_decimal_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

/// Orders names as people do, numbers in them by value: "pod-2" before "pod-10".
bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_decimal_digit(a.front()) && is_decimal_digit(b.front())) {
      const std::string_view left = take_number(a);
      const std::string_view right = take_number(b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "n01" and "n1": any order, but always the same
}

constexpr const char* kIndexedJob = "it belongs to an indexed Job; see docs/clusters.md for a manifest";

std::string kubernetes_text(const Environment& variables, const std::string& name, const char* what_to_do) {
  const auto text = variables.given(name);
  LOCKSTEP_CHECK_CONTEXT(text.has_value(), "[KubernetesClusterResolver] the variable is not set: name=", name, "; ",
                         what_to_do);
  return *text;
}

/// Returns "train-" for pod "train-3" of index 3.
std::string pod_prefix(const std::string& pod, int index) {
  const std::string number = "-" + std::to_string(index);
  LOCKSTEP_CHECK_VALUE(pod.ends_with(number),
                       "[KubernetesClusterResolver] a pod of an indexed Job is named by its index: HOSTNAME=\"", pod,
                       "\", JOB_COMPLETION_INDEX=", index, "; leave the pod's hostname as Kubernetes sets it");
  return pod.substr(0, pod.size() - number.size() + 1);
}

Resolution resolve_indexed_job(const KubernetesOptions& options) {
  const Environment& variables = options.variables;
  const int index = detail::required_number(variables, "JOB_COMPLETION_INDEX", kIndexedJob);
  const int size = detail::required_number(variables, "LOCKSTEP_NUM_WORKERS", kIndexedJob, 1);
  LOCKSTEP_CHECK_VALUE(
      index < size, "[KubernetesClusterResolver] the index is below the number of pods: JOB_COMPLETION_INDEX=", index,
      ", LOCKSTEP_NUM_WORKERS=", size, "; set it to the Job's completions");
  const std::string service = kubernetes_text(variables, "LOCKSTEP_SERVICE", kIndexedJob);
  const std::string prefix = pod_prefix(kubernetes_text(variables, "HOSTNAME", kIndexedJob), index);
  std::vector<std::string> addresses;
  for (int i = 0; i < size; ++i) {
    addresses.push_back(detail::host_and_port(c10::str(prefix, i, ".", service), options.port));
  }
  Resolution result;
  result.cluster = ClusterSpec({{"worker", addresses}});
  result.task_type = "worker";
  result.task_id = index;
  result.facts = {{"task type", "worker", "indexed Job"},
                  {"task id", std::to_string(index), "JOB_COMPLETION_INDEX"},
                  {"number of workers", std::to_string(size), "LOCKSTEP_NUM_WORKERS"}};
  const auto tasks = detail::task_facts(result.cluster, "HOSTNAME, LOCKSTEP_SERVICE + port");
  result.facts.insert(result.facts.end(), tasks.begin(), tasks.end());
  return result;
}

struct Pod {
  std::string name;
  std::string phase;
  std::string address;
  bool is_being_deleted = false;

  bool is_running() const { return phase == "Running" && !address.empty() && !is_being_deleted; }
};

Pod pod_of(const detail::Json& json) {
  return {.name = detail::text_at(json, {"metadata", "name"}),
          .phase = detail::text_at(json, {"status", "phase"}),
          .address = detail::text_at(json, {"status", "podIP"}),
          .is_being_deleted = !detail::text_at(json, {"metadata", "deletionTimestamp"}).empty()};
}

/// The API of the cluster that this pod is in, asked with its account.
class Api {
 public:
  Api(const KubernetesOptions& options, detail::ServiceClock::time_point deadline)
      : options_(options), base_(options.api), deadline_(deadline) {
    if (!base_.empty()) return;
    const char* outside = "this is no pod of Kubernetes; give KubernetesOptions::api";
    const std::string host = kubernetes_text(options.variables, "KUBERNETES_SERVICE_HOST", outside);
    const int port = detail::optional_number(options.variables, "KUBERNETES_SERVICE_PORT", 1).value_or(443);
    base_ = "https://" + detail::host_and_port(host, port);
  }

  std::vector<Pod> pods(const std::string& selector) const {
    std::vector<Pod> pods;
    std::string next_page;
    do {
      const detail::Json answer = detail::request_json(options_.client, request_for(selector, next_page), deadline_);
      LOCKSTEP_CHECK_CONTEXT(
          answer.contains("items") && answer["items"].is_array(),
          "[KubernetesClusterResolver] the API must answer with a list of pods: answer=", answer.dump().substr(0, 500));
      for (const detail::Json& pod : answer["items"]) pods.push_back(pod_of(pod));
      next_page = detail::text_at(answer, {"metadata", "continue"});
    } while (!next_page.empty());
    std::sort(pods.begin(), pods.end(), [](const Pod& a, const Pod& b) { return natural_less(a.name, b.name); });
    return pods;
  }

 private:
  std::string account_file(const std::string& name) const {
    const std::string path = options_.account_folder + "/" + name;
    std::ifstream file(path);
    LOCKSTEP_CHECK_CONTEXT(file.good(),
                           "[KubernetesClusterResolver] the account of the pod cannot be read: file=", path,
                           "; leave automountServiceAccountToken on");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    text.erase(text.find_last_not_of(" \n\r\t") + 1);
    return text;
  }

  HttpRequest request_for(const std::string& selector, const std::string& page) const {
    const std::string url = base_ + "/api/v1/namespaces/" + detail::url_escaped(account_file("namespace")) +
                            "/pods?labelSelector=" + detail::url_escaped(selector) +
                            (page.empty() ? "" : "&continue=" + detail::url_escaped(page));
    HttpRequest request = detail::request_with_token(url, account_file("token"));
    request.ca_file = options_.account_folder + "/ca.crt";
    return request;
  }

  const KubernetesOptions& options_;
  std::string base_;
  detail::ServiceClock::time_point deadline_;
};

/// The pods that one selector finds.
struct Selection {
  std::string job;
  std::string selector;
  std::vector<Pod> pods;
};

std::vector<Selection> select_pods(const KubernetesOptions& options, const Api& api) {
  std::vector<Selection> selections;
  for (const auto& [job, selectors] : options.job_to_label_mapping) {
    for (const std::string& selector : selectors) selections.push_back({job, selector, api.pods(selector)});
  }
  return selections;
}

void check_none_has_ended(const std::vector<Selection>& selections) {
  for (const Selection& selection : selections) {
    for (const Pod& pod : selection.pods) {
      LOCKSTEP_CHECK_CONTEXT(pod.phase != "Failed" && pod.phase != "Succeeded",
                             "[KubernetesClusterResolver] a selected pod has ended: pod=", pod.name,
                             ", phase=", pod.phase, ", selector=", selection.selector,
                             "; delete it, or select other labels");
    }
  }
}

/// Returns what is missing, or who is too many, until all pods run; empty where nothing is.
std::string missing_pod(const std::vector<Selection>& selections, std::optional<int> num_pods) {
  int count = 0;
  for (const Selection& selection : selections) {
    count += static_cast<int>(selection.pods.size());
    for (const Pod& pod : selection.pods) {
      if (!pod.is_running()) {
        return c10::str("every pod must be running: pod=", pod.name, ", phase=", pod.phase,
                        pod.is_being_deleted ? ", it is being deleted" : "",
                        pod.address.empty() ? ", it has no address" : "");
      }
    }
  }
  if (!num_pods || count == *num_pods) return "";
  // Where other jobs are selected, too, their pods may come on top of the workers.
  const bool one_job = std::all_of(selections.begin(), selections.end(),
                                   [&](const Selection& each) { return each.job == selections.front().job; });
  if (count > *num_pods && !one_job) return "";
  if (count < *num_pods) return c10::str("all pods must exist: pods=", count, ", LOCKSTEP_NUM_WORKERS=", *num_pods);
  std::string names;
  for (const Selection& selection : selections) {
    for (const Pod& pod : selection.pods) names += (names.empty() ? "" : " ") + pod.name;
  }
  return c10::str("there must not be more pods than workers: pods=", count, " (", names,
                  "), LOCKSTEP_NUM_WORKERS=", *num_pods);
}

std::vector<Selection> wait_for_pods(const KubernetesOptions& options) {
  const auto deadline = detail::ServiceClock::now() + options.timeout;
  const Api api(options, deadline);
  const auto num_pods = detail::optional_number(options.variables, "LOCKSTEP_NUM_WORKERS", 1);
  detail::RetryPause pause(deadline);
  while (true) {
    std::vector<Selection> selections = select_pods(options, api);
    check_none_has_ended(selections);
    const std::string missing = missing_pod(selections, num_pods);
    if (missing.empty()) return selections;
    LOCKSTEP_CHECK_CONTEXT(pause.wait(), "[KubernetesClusterResolver] ", missing,
                           ", timeout=", std::chrono::duration<double>(options.timeout).count(),
                           " s; wait for it, raise KubernetesOptions::timeout, or select other labels");
  }
}

Resolution resolve_by_api(const KubernetesOptions& options) {
  const std::string own_name = options.variables.given("HOSTNAME").value_or("");
  Resolution result;
  result.rpc_layer = options.rpc_layer;
  std::map<std::string, std::vector<std::string>> addresses;
  for (const auto& [job, selectors] : options.job_to_label_mapping) addresses[job];
  for (const Selection& selection : wait_for_pods(options)) {
    auto& of_job = addresses[selection.job];
    for (const Pod& pod : selection.pods) {
      const int index = static_cast<int>(of_job.size());
      of_job.push_back(detail::host_and_port(pod.address, options.port));
      result.facts.push_back(
          {c10::str(selection.job, " ", index), of_job.back(), "pod " + pod.name + " of " + selection.selector});
      if (pod.name == own_name) {
        result.task_type = selection.job;
        result.task_id = index;
      }
    }
  }
  std::map<std::string, TaskAddresses> jobs;
  for (const auto& [job, of_job] : addresses) jobs.emplace(job, of_job);
  result.cluster = ClusterSpec(std::move(jobs));
  const std::string source = options.task_type || options.task_id ? "argument of the resolver" : "pod of HOSTNAME";
  if (options.task_type) result.task_type = options.task_type;
  if (options.task_id) result.task_id = options.task_id;
  if (result.task_id) result.facts.insert(result.facts.begin(), {"task id", std::to_string(*result.task_id), source});
  if (result.task_type) result.facts.insert(result.facts.begin(), {"task type", *result.task_type, source});
  return result;
}

Resolution resolve(const KubernetesOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.port >= 1 && options.port <= 65535,
                       "[KubernetesClusterResolver] a port is in 1 … 65535: port=", options.port);
  LOCKSTEP_CHECK_VALUE(options.timeout.count() >= 0,
                       "[KubernetesClusterResolver] the timeout must not be negative: ms=", options.timeout.count());
  const bool is_indexed_job = options.variables.given("JOB_COMPLETION_INDEX") && options.api.empty() &&
                              options.variables.given("LOCKSTEP_NUM_WORKERS");
  return is_indexed_job ? resolve_indexed_job(options) : resolve_by_api(options);
}

}  // namespace

KubernetesClusterResolver::KubernetesClusterResolver(const KubernetesOptions& options)
    : FixedClusterResolver(resolve(options)) {}

}  // namespace lockstep
