#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/resolvers/gce.h"
#include "lockstep/cluster/resolvers/kubernetes.h"
#include "lockstep/cluster/resolvers/tpu.h"
#include "tests/cluster/expect_error.h"
#include "tests/cluster/service_account.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

/// A service with fixed answers. Keeps what it was asked.
class FakeService {
 public:
  FakeService(std::initializer_list<std::pair<const std::string, std::string>> answers) : answers_(answers) {}

  void add(const std::string& url, const std::string& answer) { answers_[url] = answer; }

  /// Gives these answers first, to whatever is asked.
  void begin_with(std::vector<HttpResponse> answers) { first_ = std::move(answers); }

  size_t num_requests_to(const std::string& part) const {
    return static_cast<size_t>(std::count_if(requests.begin(), requests.end(), [&](const HttpRequest& request) {
      return request.url.find(part) != std::string::npos;
    }));
  }

  HttpClient client() {
    return [this](const HttpRequest& request) -> HttpResponse {
      requests.push_back(request);
      if (requests.size() <= first_.size()) return first_[requests.size() - 1];
      const auto found = answers_.find(request.url);
      if (found == answers_.end()) return {404, "no such page: " + request.url};
      return {200, found->second};
    };
  }

  std::vector<HttpRequest> requests;

 private:
  std::map<std::string, std::string> answers_;
  std::vector<HttpResponse> first_;
};

std::string pod(const std::string& name, const std::string& address, const std::string& phase = "Running") {
  return R"({"metadata": {"name": ")" + name + R"("}, "status": {"phase": ")" + phase + R"(", "podIP": ")" + address +
         R"("}})";
}

constexpr const char* kPods = "https://10.96.0.1:443/api/v1/namespaces/team/pods?labelSelector=job-name%3Dtrain";

KubernetesOptions kubernetes(FakeService& service, const ServiceAccount& account) {
  KubernetesOptions options;
  options.job_to_label_mapping = {{"worker", {"job-name=train"}}};
  options.account_folder = account.folder();
  options.client = service.client();
  options.timeout = std::chrono::seconds(20);
  options.variables = Environment(
      {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}, {"HOSTNAME", "train-2"}});
  return options;
}

TEST(KubernetesApiTest, FindsRunningPodsByLabel) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, R"({"items": [)" + pod("train-10", "10.0.0.3") + "," + pod("train-2", "10.0.0.2") +
                                   R"(], "metadata": {"continue": "p=2"}})"},
                       {std::string(kPods) + "&continue=p%3D2", R"({"items": [)" + pod("train-0", "10.0.0.1") + "]}"}});
  const KubernetesClusterResolver resolver(kubernetes(service, account));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"),
              ElementsAre("10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "grpc://10.0.0.2:8470");
  EXPECT_THAT(service.requests.at(0).headers, ElementsAre("Authorization: Bearer secret"));
  EXPECT_EQ(service.requests.at(0).ca_file, account.folder() + "/ca.crt");
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"worker 0", "10.0.0.1:8470", "pod train-0 of job-name=train"}));
}

TEST(KubernetesApiTest, ATaskMayBeGiven) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, R"({"items": [)" + pod("a", "10.0.0.1") + "]}"}});
  KubernetesOptions options = kubernetes(service, account);
  EXPECT_EQ(KubernetesClusterResolver(options).master(), "");
  options.task_type = "worker";
  options.task_id = 0;
  EXPECT_EQ(KubernetesClusterResolver(options).master(), "grpc://10.0.0.1:8470");
}

TEST(KubernetesApiTest, SaysWhatIsWrong) {
  const ServiceAccount account("team", "secret", "");
  FakeService empty({});
  EXPECT_ERROR(KubernetesClusterResolver(kubernetes(empty, account)), ContextError, "status=404");
  FakeService no_json({{kPods, "<html>"}});
  EXPECT_ERROR(KubernetesClusterResolver(kubernetes(no_json, account)), c10::ValueError, "must be JSON");
  FakeService no_list({{kPods, "{}"}});
  EXPECT_ERROR(KubernetesClusterResolver(kubernetes(no_list, account)), ContextError, "list of pods");
  KubernetesOptions options = kubernetes(empty, account);
  options.account_folder = "/nowhere";
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "file=/nowhere/namespace");
  options.variables = Environment(std::map<std::string, std::string>{});
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "name=KUBERNETES_SERVICE_HOST");
}

std::string pods(const std::vector<std::string>& list) {
  std::string items;
  for (const std::string& one : list) items += (items.empty() ? "" : ",") + one;
  return R"({"items": [)" + items + "]}";
}

constexpr const char* kRunning = "10.0.0.1";

TEST(KubernetesApiTest, WaitsUntilAllPodsRun) {
  const ServiceAccount account("team", "secret", "");
  const std::string running = pods({pod("train-0", kRunning), pod("train-2", "10.0.0.2")});
  FakeService service({{kPods, running}});
  service.begin_with({{200, pods({pod("train-0", kRunning), pod("train-2", "", "Pending")})},
                      {200, pods({pod("train-0", kRunning), pod("train-2", "", "Unknown")})},
                      {200, pods({pod("train-0", kRunning), pod("train-2", "", "Running")})}});  // no address yet
  const KubernetesClusterResolver resolver(kubernetes(service, account));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("10.0.0.1:8470", "10.0.0.2:8470"));
  EXPECT_EQ(service.requests.size(), 4);
}

TEST(KubernetesApiTest, WaitsForPodsThatAreBeingDeleted) {
  const ServiceAccount account("team", "secret", "");
  const std::string leaving = R"({"metadata": {"name": "train-0", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                                  "status": {"phase": "Running", "podIP": "10.0.0.9"}})";
  FakeService service({{kPods, pods({pod("train-2", "10.0.0.2")})}});
  service.begin_with({{200, pods({leaving, pod("train-2", "10.0.0.2")})}});
  EXPECT_THAT(KubernetesClusterResolver(kubernetes(service, account)).cluster_spec().job_tasks("worker"),
              ElementsAre("10.0.0.2:8470"));
}

TEST(KubernetesApiTest, WaitsForAsManyPodsAsThereAreWorkers) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, pods({pod("train-0", kRunning), pod("train-2", "10.0.0.2")})}});
  service.begin_with({{200, pods({pod("train-2", "10.0.0.2")})}});
  KubernetesOptions options = kubernetes(service, account);
  options.variables.set("LOCKSTEP_NUM_WORKERS", "2");
  EXPECT_EQ(KubernetesClusterResolver(options).cluster_spec().num_tasks("worker"), 2);
  options.variables.set("LOCKSTEP_NUM_WORKERS", "3");
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "pods=2, LOCKSTEP_NUM_WORKERS=3");
}

// A pod of a rolling replacement: other workers may or may not see it.
TEST(KubernetesApiTest, WaitsWhileThereAreMorePodsThanWorkers) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, pods({pod("train-0", kRunning), pod("train-2", "10.0.0.2")})}});
  service.begin_with({{200, pods({pod("train-0", kRunning), pod("train-1", "10.0.0.3"), pod("train-2", "10.0.0.2")})}});
  KubernetesOptions options = kubernetes(service, account);
  options.variables.set("LOCKSTEP_NUM_WORKERS", "2");
  EXPECT_EQ(KubernetesClusterResolver(options).cluster_spec().num_tasks("worker"), 2);
  options.variables.set("LOCKSTEP_NUM_WORKERS", "1");
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "pods=2 (train-0 train-2), LOCKSTEP_NUM_WORKERS=1");
}

TEST(KubernetesApiTest, TheWaitEnds) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, pods({pod("train-0", "", "Pending")})}});
  KubernetesOptions options = kubernetes(service, account);
  options.timeout = std::chrono::milliseconds(300);
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "pod=train-0, phase=Pending");
  EXPECT_GT(service.requests.size(), 1);
  service.requests.clear();
  options.timeout = std::chrono::milliseconds(0);
  EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "pod=train-0, phase=Pending");
  EXPECT_EQ(service.requests.size(), 1);
  options.timeout = std::chrono::milliseconds(-1);
  EXPECT_ERROR(KubernetesClusterResolver{options}, c10::ValueError, "ms=-1");
}

TEST(KubernetesApiTest, PodsThatHaveEndedAreAnErrorAtOnce) {
  const ServiceAccount account("team", "secret", "");
  for (const std::string phase : {"Failed", "Succeeded"}) {
    // Also beside pods that would be waited for, and with an address.
    for (const std::string address : {"", "10.0.0.2"}) {
      FakeService service({{kPods, pods({pod("train-0", "", "Pending"), pod("train-2", address, phase)})}});
      EXPECT_ERROR(KubernetesClusterResolver(kubernetes(service, account)), ContextError,
                   "pod=train-2, phase=" + phase);
      EXPECT_EQ(service.requests.size(), 1);
    }
  }
}

TEST(KubernetesApiTest, AsksAnOverloadedApiAgain) {
  const ServiceAccount account("team", "secret", "");
  for (const int status : {429, 503}) {
    FakeService service({{kPods, pods({pod("train-2", kRunning)})}});
    service.begin_with({{status, "later"}, {status, "later"}});
    EXPECT_EQ(KubernetesClusterResolver(kubernetes(service, account)).task_id(), 0);
    EXPECT_EQ(service.requests.size(), 3);
    service.requests.clear();
    service.begin_with(std::vector<HttpResponse>(1000, {status, "later"}));
    KubernetesOptions options = kubernetes(service, account);
    options.timeout = std::chrono::milliseconds(300);
    EXPECT_ERROR(KubernetesClusterResolver{options}, ContextError, "status=" + std::to_string(status));
    EXPECT_GT(service.requests.size(), 2);
  }
  for (const int status : {400, 401, 403, 404, 500}) {
    FakeService service({});
    service.begin_with(std::vector<HttpResponse>(10, {status, "no"}));
    EXPECT_ERROR(KubernetesClusterResolver(kubernetes(service, account)), ContextError,
                 "status=" + std::to_string(status));
    EXPECT_EQ(service.requests.size(), 1) << status;
  }
}

TEST(KubernetesApiTest, WaitsAsLongAsTheApiAsks) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({{kPods, pods({pod("train-2", kRunning)})}});
  service.begin_with({{429, "later", std::chrono::seconds(1)}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(KubernetesClusterResolver(kubernetes(service, account)).task_id(), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(990));
  service.requests.clear();
  service.begin_with({{429, "later", std::chrono::hours(1)}});  // after the deadline
  EXPECT_ERROR(KubernetesClusterResolver(kubernetes(service, account)), ContextError, "status=429");
}

TEST(KubernetesApiTest, ATokenIsSentByHttpsOnly) {
  const ServiceAccount account("team", "secret", "");
  FakeService service({});
  KubernetesOptions options = kubernetes(service, account);
  options.api = "http://10.96.0.1";
  EXPECT_ERROR(KubernetesClusterResolver{options}, c10::ValueError, "a token is sent by https only: url=http://10.96");
  EXPECT_TRUE(service.requests.empty());
}

const std::string kMetadata = "http://metadata.google.internal/computeMetadata/v1/";
const std::pair<const std::string, std::string> kToken{kMetadata + "instance/service-accounts/default/token",
                                                       R"({"access_token": "t0"})"};

TEST(GCEClusterResolverTest, FindsTheRunningMachinesOfAGroup) {
  const std::string zone = "https://compute.googleapis.com/compute/v1/projects/p/zones/z";
  FakeService service(
      {kToken,
       {zone + "/instanceGroups/g/listInstances",
        R"({"items": [{"instance": ")" + zone + R"(/instances/vm-b"}], "nextPageToken": "2"})"},
       {zone + "/instanceGroups/g/listInstances?pageToken=2",
        R"({"items": [{"instance": ")" + zone + R"(/instances/vm-a"}]})"},
       {zone + "/instances/vm-a", R"({"networkInterfaces": [{"networkIP": "10.1.0.2"}]})"},
       {zone + "/instances/vm-b", R"({"networkInterfaces": [{"networkIP": "10.1.0.10"}, {"networkIP": "9.9.9.9"}]})"}});
  GCEOptions options;
  options.project = "p";
  options.zone = "z";
  options.instance_group = "g";
  options.port = 2222;
  options.task_id = 1;
  options.client = service.client();
  const GCEClusterResolver resolver(options);
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("10.1.0.10:2222", "10.1.0.2:2222"));
  EXPECT_EQ(resolver.master(), "grpc://10.1.0.2:2222");
  EXPECT_EQ(service.requests.at(1).body, R"({"instanceState": "RUNNING"})");
  EXPECT_THAT(service.requests.at(1).headers, ElementsAre("Authorization: Bearer t0"));
  options.port = 0;
  EXPECT_ERROR(GCEClusterResolver{options}, c10::ValueError, "port=0");
  options.zone = "";
  EXPECT_ERROR(GCEClusterResolver{options}, c10::ValueError, "zone=\"\"");
}

/// A group of machines vm-0, vm-1, … at 10.1.0.0, 10.1.0.1, …, and a token that lives as long as `expires_in` says.
FakeService group_of(int num_machines, const std::string& expires_in) {
  const std::string zone = "https://compute.googleapis.com/compute/v1/projects/p/zones/z";
  std::string items;
  FakeService service({{kToken.first, R"({"access_token": "t0")" + expires_in + "}"}});
  for (int i = 0; i < num_machines; ++i) {
    const std::string url = zone + "/instances/vm-" + std::to_string(i);
    items += (i == 0 ? "" : ",") + std::string(R"({"instance": ")") + url + R"("})";
    service.add(url, R"({"networkInterfaces": [{"networkIP": "10.1.0.)" + std::to_string(i) + R"("}]})");
  }
  service.add(zone + "/instanceGroups/g/listInstances", R"({"items": [)" + items + "]}");
  return service;
}

GCEOptions group_options(FakeService& service) {
  GCEOptions options;
  options.project = "p";
  options.zone = "z";
  options.instance_group = "g";
  options.port = 2222;
  options.client = service.client();
  return options;
}

TEST(GCEClusterResolverTest, FetchesATokenOnceUntilItExpires) {
  for (const std::string lasting : {"", R"(, "expires_in": 3599)", R"(, "expires_in": 100)"}) {
    FakeService service = group_of(8, lasting);
    EXPECT_EQ(GCEClusterResolver(group_options(service)).cluster_spec().num_tasks("worker"), 8);
    EXPECT_EQ(service.num_requests_to("/token"), 1) << lasting;
    EXPECT_EQ(service.requests.size(), 10);
  }
  // Tokens that have expired, or are about to.
  for (const std::string over : {R"(, "expires_in": 0)", R"(, "expires_in": -5)", R"(, "expires_in": 20)"}) {
    FakeService service = group_of(3, over);
    EXPECT_EQ(GCEClusterResolver(group_options(service)).cluster_spec().num_tasks("worker"), 3);
    EXPECT_EQ(service.num_requests_to("/token"), 4) << over;
  }
}

TEST(GCEClusterResolverTest, AsksTheMetadataServerWithoutAProxy) {
  FakeService service = group_of(2, "");
  const GCEClusterResolver resolver(group_options(service));
  for (const HttpRequest& request : service.requests) {
    EXPECT_EQ(request.use_proxy, !request.url.starts_with("http://metadata")) << request.url;
  }
}

TEST(GCEClusterResolverTest, AsksAnOverloadedServiceAgain) {
  FakeService service = group_of(2, "");
  service.begin_with({{503, "later"}});
  EXPECT_EQ(GCEClusterResolver(group_options(service)).cluster_spec().num_tasks("worker"), 2);
}

TPUOptions named_tpu(FakeService& service) {
  TPUOptions options;
  options.tpu = "pod";
  options.client = service.client();
  options.variables = Environment(std::map<std::string, std::string>{});
  return options;
}

FakeService tpu_service(const std::string& node) {
  return FakeService({kToken,
                      {kMetadata + "project/project-id", "p"},
                      {kMetadata + "instance/zone", "projects/1/zones/us-central1-b"},
                      {"https://tpu.googleapis.com/v1/projects/p/locations/us-central1-b/nodes/pod", node}});
}

TEST(TPUClusterResolverTest, LooksUpNames) {
  FakeService service = tpu_service(
      R"({"state": "READY", "acceleratorType": "v3-16",
          "networkEndpoints": [{"ipAddress": "10.2.0.1", "port": 8470}, {"ipAddress": "10.2.0.2", "port": "8471"}]})");
  const TPUClusterResolver resolver(named_tpu(service));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("10.2.0.1:8470", "10.2.0.2:8471"));
  EXPECT_EQ(resolver.num_accelerators(), (std::map<std::string, int>{{"TPU", 8}}));
}

TEST(TPUClusterResolverTest, SaysWhatIsWrong) {
  FakeService creating = tpu_service(R"({"state": "CREATING"})");
  EXPECT_ERROR(TPUClusterResolver(named_tpu(creating)), ContextError, "state=CREATING");
  FakeService uneven = tpu_service(
      R"({"state": "READY", "acceleratorType": "v3-8", "networkEndpoints": [{"ipAddress": "a"}, {"ipAddress": "b"},
          {"ipAddress": "c"}]})");
  EXPECT_ERROR(TPUClusterResolver(named_tpu(uneven)), ContextError, "cores=8, hosts=3");
  FakeService list = tpu_service("[]");
  EXPECT_ERROR(TPUClusterResolver(named_tpu(list)), ContextError, "must answer with an object");
  FakeService odd = tpu_service(R"({"state": "READY", "networkEndpoints": ["a"]})");
  EXPECT_ERROR(TPUClusterResolver(named_tpu(odd)), ContextError, "has no address");
  FakeService nowhere = tpu_service(R"({"state": "READY"})");
  EXPECT_ERROR(TPUClusterResolver(named_tpu(nowhere)), ContextError, "has no address");
}

}  // namespace
}  // namespace lockstep
