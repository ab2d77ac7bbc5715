#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/resolvers/tpu.h"
#include "tests/cluster/expect_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;
using Counts = std::map<std::string, int>;

/// The files of a machine that show its TPU chips.
class Machine {
 public:
  Machine() : root_(fs::temp_directory_path() / ("lockstep_tpu_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void add(const std::string& path, const std::string& text = "") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void add_pci(const std::string& slot, const std::string& vendor, const std::string& device) {
    add("sys/bus/pci/devices/" + slot + "/vendor", vendor + "\n");
    add("sys/bus/pci/devices/" + slot + "/device", device + "\n");
  }

  TPUOptions options(const Variables& variables) const {
    TPUOptions options;
    options.variables = Environment(variables);
    options.machine_root = root_.string();
    return options;
  }

 private:
  fs::path root_;
};

TEST(TPUResolverTest, CountsChipsOnThePciBus) {
  Machine machine;
  const TPUOptions local = machine.options({{"TPU_NAME", "local"}});
  EXPECT_EQ(TPUClusterResolver(local).num_accelerators(), (Counts{{"TPU", 0}}));
  machine.add("dev/accel7");
  for (const char* slot : {"0000:00:04.0", "0000:00:05.0"}) machine.add_pci(slot, "0x1ae0", "0x005e");
  machine.add_pci("0000:00:01.0", "0x1ae0", "0x0042");  // Google's network card
  machine.add_pci("0000:00:02.0", "0x10de", "0x005e");  // another vendor's
  const TPUClusterResolver resolver(local);
  EXPECT_EQ(resolver.num_accelerators(), (Counts{{"TPU", 2}}));
  EXPECT_FALSE(resolver.cluster_spec());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_THAT(resolver.facts(), ElementsAre(ClusterFact{"TPU", "local", "TPU_NAME"},
                                            ClusterFact{"TPU devices", "2", "PCI devices of Google"}));
}

TEST(TPUResolverTest, OldChipsAreTwoDevices) {
  Machine machine;
  for (const char* slot : {"0", "1", "2", "3"}) machine.add_pci(slot, "0x1ae0", "0x0027");
  EXPECT_EQ(TPUClusterResolver(machine.options({{"TPU_NAME", "local"}})).num_accelerators(), (Counts{{"TPU", 8}}));
  EXPECT_EQ(TPUClusterResolver(machine.options({{"TPU_NAME", "local"}, {"TPU_VISIBLE_CHIPS", "1"}})).num_accelerators(),
            (Counts{{"TPU", 2}}));
}

TEST(TPUResolverTest, CountsDeviceFiles) {
  Machine machine;
  for (const char* file : {"dev/vfio/0", "dev/vfio/1", "dev/vfio/vfio", "dev/accelerator"}) machine.add(file);
  EXPECT_EQ(TPUClusterResolver(machine.options({{"TPU_NAME", "local"}})).num_accelerators(), (Counts{{"TPU", 2}}));
  for (const char* file : {"dev/accel0", "dev/accel1", "dev/accel2", "dev/accel3"}) machine.add(file);
  EXPECT_EQ(
      TPUClusterResolver(machine.options({{"TPU_NAME", "local"}, {"TPU_ACCELERATOR_TYPE", "v3-8"}})).num_accelerators(),
      (Counts{{"TPU", 8}}));
}

TEST(TPUResolverTest, ASliceIsItsWorkers) {
  Machine machine;
  machine.add("dev/accel0");
  const Variables pod{{"TPU_WORKER_HOSTNAMES", "t0,t1,t2"}, {"TPU_WORKER_ID", "1"}};
  const TPUClusterResolver resolver(machine.options(pod));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("t0:8470", "t1:8470", "t2:8470"));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "grpc://t1:8470");
  EXPECT_EQ(resolver.num_accelerators(), (Counts{{"TPU", 1}}));
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"task id", "1", "TPU_WORKER_ID"}));
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"worker 2", "t2:8470", "TPU_WORKER_HOSTNAMES"}));
}

TEST(TPUResolverTest, ProcessesHaveTheirOwnList) {
  const Machine machine;
  Variables pod{{"TPU_WORKER_HOSTNAMES", "t0"},
                {"TPU_PROCESS_ADDRESSES", "t0:8476,t0:8477"},
                {"CLOUD_TPU_TASK_ID", "1"},
                {"TPU_WORKER_ID", "0"}};
  const TPUClusterResolver resolver(machine.options(pod));
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "grpc://t0:8477");
  EXPECT_EQ(resolver.cluster_spec().task_address("worker", 0), "t0:8470") << "libtpu listens at 8476";
  pod.erase("CLOUD_TPU_TASK_ID");
  EXPECT_EQ(TPUClusterResolver(machine.options(pod)).task_id(), 0);
}

TEST(TPUResolverTest, OneWorkerIsLocal) {
  const Machine machine;
  const TPUClusterResolver resolver(machine.options({{"TPU_WORKER_HOSTNAMES", "localhost"}}));
  EXPECT_FALSE(resolver.cluster_spec());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.task_id(), 0);
}

TEST(TPUResolverTest, SlicesFollowEachOther) {
  const Machine machine;
  Variables pod{{"TPU_WORKER_HOSTNAMES", "t2,t3"},
                {"TPU_WORKER_ID", "1"},
                {"MEGASCALE_NUM_SLICES", "2"},
                {"MEGASCALE_SLICE_ID", "1"},
                {"MEGASCALE_COORDINATOR_ADDRESS", "t0"}};
  const TPUClusterResolver resolver(machine.options(pod));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("t0:8470", "", "t2:8470", "t3:8470"));
  EXPECT_EQ(resolver.task_id(), 3);
  pod["MEGASCALE_SLICE_ID"] = "2";
  EXPECT_ERROR(TPUClusterResolver(machine.options(pod)), c10::ValueError,
               "MEGASCALE_SLICE_ID=2, MEGASCALE_NUM_SLICES=2");
  pod["MEGASCALE_NUM_SLICES"] = "2000000000";
  EXPECT_ERROR(TPUClusterResolver(machine.options(pod)), c10::ValueError, "MEGASCALE_NUM_SLICES=2000000000");
}

// At the port of MEGASCALE_COORDINATOR_ADDRESS MegaScale listens, and at those of TPU_PROCESS_ADDRESSES libtpu. All
// slices must agree on the address of worker 0.
TEST(TPUResolverTest, SlicesMeetAtThePortOfTheLibrary) {
  const Machine machine;
  const auto worker_0 = [&](const Variables& variables) {
    return TPUClusterResolver(machine.options(variables)).cluster_spec().task_address("worker", 0);
  };
  for (const char* list : {"TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"}) {
    for (const char* given : {"t0", "t0:8080", "t0:9000", "grpc://t0:8080"}) {
      const bool has_ports = std::string(list) == "TPU_PROCESS_ADDRESSES";
      Variables pod{{list, has_ports ? "t0:8476,t0:8477" : "t0,t1"},
                    {"TPU_WORKER_ID", "1"},
                    {"MEGASCALE_NUM_SLICES", "2"},
                    {"MEGASCALE_SLICE_ID", "0"},
                    {"MEGASCALE_COORDINATOR_ADDRESS", given}};
      EXPECT_EQ(worker_0(pod), "t0:8470") << given;
      pod["MEGASCALE_SLICE_ID"] = "1";
      pod[list] = has_ports ? "t2:8476,t2:8477" : "t2,t3";
      EXPECT_EQ(worker_0(pod), "t0:8470") << given;
    }
  }
  Variables pod{{"TPU_WORKER_HOSTNAMES", "t2,t3"},
                {"TPU_WORKER_ID", "1"},
                {"MEGASCALE_NUM_SLICES", "2"},
                {"MEGASCALE_SLICE_ID", "1"},
                {"MEGASCALE_COORDINATOR_ADDRESS", "[fd00::1]:8080"}};
  EXPECT_EQ(worker_0(pod), "[fd00::1]:8470");
  pod["MEGASCALE_COORDINATOR_ADDRESS"] = "fd00::1";
  EXPECT_EQ(worker_0(pod), "[fd00::1]:8470");
  pod.erase("MEGASCALE_COORDINATOR_ADDRESS");
  EXPECT_ERROR(TPUClusterResolver(machine.options(pod)), ContextError, "set MEGASCALE_COORDINATOR_ADDRESS");
}

TEST(TPUResolverTest, WhatIsNamedComesBeforeTheSlice) {
  const Machine machine;
  Variables pod{{"TPU_WORKER_HOSTNAMES", "t0,t1"}, {"TPU_WORKER_ID", "0"}, {"TPU_NAME", "local"}};
  EXPECT_FALSE(TPUClusterResolver(machine.options(pod)).cluster_spec());
  pod["TPU_NAME"] = "grpc://a:1";
  EXPECT_EQ(TPUClusterResolver(machine.options(pod)).master(), "grpc://a:1");
  pod["TPU_NAME"] = "my-pod";  // the slice itself
  EXPECT_EQ(TPUClusterResolver(machine.options(pod)).master(), "grpc://t0:8470");
  pod["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"] = "grpc://b:1";
  EXPECT_EQ(TPUClusterResolver(machine.options(pod)).master(), "grpc://b:1");
}

/// Answers everything, and keeps what it was asked.
struct Asked {
  std::vector<std::string> urls;
  std::string root = "https://other.example/";
  std::string token = R"({"access_token": "t0"})";

  HttpClient client() {
    return [this](const HttpRequest& request) -> HttpResponse {
      urls.push_back(request.url);
      if (request.url.ends_with("/token")) return {200, token};
      if (request.url.find("discovery") != std::string::npos) {
        return {200, R"({"rootUrl": ")" + root + R"(", "version": "v2"})"};
      }
      if (request.url.ends_with("/project-id")) return {200, "p"};
      if (request.url.ends_with("/zone")) return {200, "projects/1/zones/z"};
      return {200, R"({"state": "READY", "acceleratorType": "v4-16", "ipAddress": "10.0.0.1"})"};
    };
  }
};

TEST(TPUResolverTest, ReadsTPUConfig) {
  const Machine machine;
  Asked service;
  TPUOptions options = machine.options({{"TPU_CONFIG", R"({"tpu_node_name": "n", "project": "q", "zone": "y"})"}});
  options.client = service.client();
  const TPUClusterResolver resolver(options);
  EXPECT_EQ(service.urls.back(), "https://tpu.googleapis.com/v1/projects/q/locations/y/nodes/n");
  EXPECT_EQ(resolver.num_accelerators(), (Counts{{"TPU", 8}}));
  EXPECT_THAT(resolver.facts(), Contains(ClusterFact{"TPU", "n", "TPU_CONFIG"}));
  options.project = "given";
  EXPECT_EQ(TPUClusterResolver(options).master(), "grpc://10.0.0.1:8470");
  EXPECT_EQ(service.urls.back(), "https://tpu.googleapis.com/v1/projects/given/locations/y/nodes/n");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_CONFIG", "{"}})), c10::ValueError, "TPU_CONFIG");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_CONFIG", "{}"}})), c10::ValueError, "must be named");
}

TEST(TPUResolverTest, VariablesSayWhomToAsk) {
  const Machine machine;
  Asked service;
  TPUOptions options = machine.options(
      {{"TPU_NAME", "n"}, {"GCE_METADATA_IP", "1.2.3.4"}, {"TPU_API_DISCOVERY_URL", "https://discovery.example/doc"}});
  options.client = service.client();
  const TPUClusterResolver resolver(options);
  EXPECT_EQ(service.urls.front(), "http://1.2.3.4/computeMetadata/v1/project/project-id");
  EXPECT_EQ(service.urls.back(), "https://other.example/v2/projects/p/locations/z/nodes/n");
}

TEST(TPUResolverTest, ATokenIsSentByHttpsOnly) {
  const Machine machine;
  Asked service;
  service.root = "http://other.example/";
  Variables variables{{"TPU_NAME", "n"}, {"TPU_API_DISCOVERY_URL", "https://discovery.example/doc"}};
  TPUOptions options = machine.options(variables);
  options.client = service.client();
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "a token is sent by https only: url=http://other.example");
  EXPECT_THAT(service.urls, Each(Not(HasSubstr("token"))));
  service.root = "https://other.example/";
  variables["TPU_API_DISCOVERY_URL"] = "http://discovery.example/doc";
  options.variables = machine.options(variables).variables;
  EXPECT_ERROR(TPUClusterResolver{options}, c10::ValueError, "by https only: url=http://discovery.example/doc");
}

TEST(TPUResolverTest, ErrorsDoNotShowTokens) {
  const Machine machine;
  Asked service;
  TPUOptions options = machine.options({{"TPU_NAME", "n"}});
  options.client = service.client();
  for (const char* broken : {R"({"access_token": "ya29.secret)", "ya29.secret", R"(["ya29.secret"])"}) {
    service.token = broken;
    try {
      const TPUClusterResolver resolver(options);
      ADD_FAILURE() << "no error: " << broken;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), Not(HasSubstr("secret")));
    }
  }
}

TEST(TPUResolverTest, SaysWhatIsWrong) {
  const Machine machine;
  EXPECT_ERROR(TPUClusterResolver(machine.options({})), c10::ValueError, "a TPU must be named");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_NAME", "a,b"}})), c10::NotImplementedError, "tpu=\"a,b\"");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_NAME", "a"}, {"TPU_SKIP_MDS_QUERY", "1"}})), ContextError,
               "TPU_SKIP_MDS_QUERY");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_WORKER_HOSTNAMES", "a,b"}})), ContextError,
               "name=TPU_WORKER_ID");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "2"}})),
               c10::ValueError, "TPU_WORKER_ID=2, workers in TPU_WORKER_HOSTNAMES=2");
  EXPECT_ERROR(TPUClusterResolver(machine.options({{"TPU_WORKER_HOSTNAMES", "a,,b"}, {"TPU_WORKER_ID", "1"}})),
               c10::ValueError, "TPU_WORKER_HOSTNAMES=\"a,,b\"");
}

}  // namespace
}  // namespace lockstep
