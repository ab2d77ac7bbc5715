#pragma once

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/device/logical_devices.h"
#include "tests/support/ranks_as_threads.h"

/// Ranks whose collectives the stand-in of NCCL carries, on one card.
namespace lockstep::tests {

/// Sets variables of the environment, and removes them at the end.
class Variables {
 public:
  Variables(std::initializer_list<std::pair<const char*, const char*>> values) : values_(values) {
    for (const auto& [name, value] : values_) ::setenv(name, value, 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) ::unsetenv(name);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<const char*, const char*>> values_;
};

/// Skips where there is no GPU, or no stand-in. The program has set LOCKSTEP_NCCL_STANDIN=1 when it started.
class NcclRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto nccl = comm::find_engine("nccl");
    if (!nccl.available) GTEST_SKIP() << nccl.why_not;
    ASSERT_TRUE(comm::takes_ranks_of_one_card());
  }
};

inline const at::Device kCard(at::kCUDA, 0);

/// With two logical GPUs, GPU:0 and GPU:1, on the first card, which the stand-in takes for two cards.
class NcclReplicasTest : public NcclRanksTest {
 protected:
  void SetUp() override {
    NcclRanksTest::SetUp();
    if (IsSkipped()) return;
    std::vector<int> counts(list_physical_devices("GPU").size());
    counts.at(0) = 2;
    set_logical_devices_per_physical("GPU", counts);
  }
  void TearDown() override { reset_logical_devices(); }
};

/// The groups of ranks of this process that are connected by the engine `nccl`.
class NcclRanks {
 public:
  explicit NcclRanks(int size, std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : rendezvous_(std::make_shared<comm::Rendezvous>(size, "test")),
        collectives_(comm::make_device_collectives(
            {.name = "test", .devices = std::vector<int>(static_cast<size_t>(size), 0), .timeout = timeout})),
        groups_(comm::make_local_device_groups(comm::make_local_groups(rendezvous_), rendezvous_, collectives_)) {
    rendezvous_->set_default_timeout(timeout);
  }

  comm::DeviceCollectives& collectives() const { return *collectives_; }

  /// Runs `body(group)` for every rank on a thread and a stream of its own, as a strategy does. Returns what each rank
  /// threw; last, what the begin or the end of the run threw.
  std::vector<std::string> run(const std::function<void(const comm::Group&)>& body) const {
    std::vector<std::string> errors(groups_.size() + 1);
    try {
      for (const comm::Group& group : groups_) group.impl()->begin_run();
      const auto thrown = run_ranks(*rendezvous_, [&](int rank) {
        const comm::Group& group = groups_[static_cast<size_t>(rank)];
        const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
        const c10::Stream stream = cuda.getStreamFromGlobalPool(kCard);
        const c10::StreamGuard guard(stream);
        try {
          body(group);
        } catch (...) {
          group.impl()->leave(std::current_exception());
          stream.synchronize();
          throw;
        }
        group.impl()->leave(nullptr);
        stream.synchronize();
      });
      for (size_t i = 0; i < thrown.size(); ++i) errors[i] = tests::message_of(thrown[i]);
      groups_[0].impl()->check_queued_work("run");
    } catch (...) {
      errors.back() = tests::message_of(std::current_exception());
    }
    return errors;
  }

  /// As `run`, where nothing is thrown.
  void run_well(const std::function<void(const comm::Group&)>& body) const {
    for (const std::string& error : run(body)) EXPECT_EQ(error, "");
  }

 private:
  std::shared_ptr<comm::Rendezvous> rendezvous_;
  std::shared_ptr<comm::DeviceCollectives> collectives_;
  std::vector<comm::Group> groups_;
};

/// Runs `body(group)` for every rank of a new group.
inline void run_nccl(int size, const std::function<void(const comm::Group&)>& body) { NcclRanks(size).run_well(body); }

}  // namespace lockstep::tests
