#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/transport/engine_module.h"
#include "tests/comm/transport_scenarios.h"
#include "tests/support/child_processes.h"
#include "tests/support/fake_job.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kPatience = 120s;

class NcclTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto nccl = comm::find_engine("nccl");
    if (!nccl.available) GTEST_SKIP() << nccl.why_not;
  }
};

TEST_F(NcclTransportTest, IsAloneWithoutPeers) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 1);
  const auto transport =
      comm::make_transport("nccl", job, {.name = "alone", .num_lanes = 2, .devices = {0, 0}, .timeout = kPatience});
  EXPECT_EQ(transport->name(), "nccl");
  EXPECT_EQ(transport->num_lanes(), 2);
  EXPECT_TRUE(transport->moves_device_memory());
  EXPECT_NO_THROW(transport->exchange(0, {}, {}, kPatience));
  EXPECT_NO_THROW(transport->exchange(1, {}, {}, kPatience));
}

TEST_F(NcclTransportTest, SaysWhyItWasAborted) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 1);
  const auto transport =
      comm::make_transport("nccl", job, {.name = "aborted", .num_lanes = 1, .devices = {0}, .timeout = kPatience});
  transport->abort("worker 7 has had enough");
  try {
    transport->exchange(0, {}, {}, kPatience);
    ADD_FAILURE() << "it went on";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("worker 7 has had enough"));
  }
}

TEST_F(NcclTransportTest, WantsADeviceForEachLane) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 1);
  EXPECT_THROW(
      comm::make_transport("nccl", job, {.name = "lanes", .num_lanes = 2, .devices = {0}, .timeout = kPatience}),
      c10::ValueError);
}

TEST_F(NcclTransportTest, StopsWaitingAtTheDeadline) {
  const TestFolder folder;
  FakeJob job(folder.path(), 0, 2);
  EXPECT_THROW(comm::make_transport("nccl", job, {.name = "lonely", .num_lanes = 1, .devices = {0}, .timeout = 2s}),
               CollectiveError);
}

TEST_F(NcclTransportTest, CarriesMessagesBetweenProcesses) {
  const TestFolder folder;
  std::vector<ChildProcess> workers;
  for (int worker = 0; worker < 2; ++worker) {
    const std::vector<std::string> command{this_program(), "--nccl-worker", folder.path(), std::to_string(worker), "2"};
    workers.emplace_back(command, folder.path() / ("output-" + std::to_string(worker)));
  }
  const auto deadline = std::chrono::steady_clock::now() + 2 * kPatience;
  for (auto& worker : workers) worker.wait_until(deadline);
  for (auto& worker : workers) {
    if (worker.outcome() == "exit " + std::to_string(kSkipped)) GTEST_SKIP() << worker.output();
    EXPECT_EQ(worker.outcome(), "exit 0") << worker.output();
  }
}

/// Each sends the other its number, often enough that stale memory would show.
void pass_numbers(comm::Transport& transport, at::Device device) {
  const int peer = 1 - transport.worker();
  for (const int64_t length : {1, 1000, 3'000'000}) {
    for (int round = 0; round < 3; ++round) {
      const auto sent = at::full({length}, transport.worker() * 100 + round, at::device(device).dtype(at::kFloat));
      auto received = at::zeros({length}, sent.options());
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
      const comm::Outgoing out{peer, sent.data_ptr(), sent.nbytes()};
      const comm::Incoming in{peer, received.data_ptr(), received.nbytes()};
      transport.exchange(0, {&out, 1}, {&in, 1}, kPatience);
      LOCKSTEP_CHECK_AS(InternalError, received.eq(peer * 100 + round).all().item<bool>(), "[test] wrong numbers came");
    }
  }
}

}  // namespace

int run_nccl_worker(const std::string& folder, int worker, int num_workers) {
  const int num_cards = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(worker % num_cards));
  FakeJob job(folder, worker, num_workers);
  try {
    const auto transport = comm::make_transport(
        "nccl", job, {.name = "pair", .num_lanes = 1, .devices = {device.index()}, .timeout = kPatience});
    pass_numbers(*transport, device);
    job.all_gather("done", "", kPatience);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return num_cards < num_workers ? kSkipped : 1;
  }
}

}  // namespace lockstep::tests
