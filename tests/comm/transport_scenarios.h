#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/comm/transport.h"
#include "tests/support/fake_job.h"

/// What the processes of transport_test.cpp do. Each scenario is run by all workers at once; it throws where the
/// transport did not do as it should.
namespace lockstep::testing {

struct Scenario {
  std::string_view name;
  int num_lanes;
  void (*run)(comm::Transport& transport, FakeJob& job);
};

std::span<const Scenario> scenarios();

/// Runs one as the worker of a job in that folder, over that engine. Returns the process's exit status.
int run_scenario(const std::string& name, const std::string& engine, const std::string& folder, int worker,
                 int num_workers);

/// Sends messages between GPUs, as the worker of a job in that folder. Returns the process's exit status, which is
/// kSkipped where NCCL does not want two workers on one card.
int run_nccl_worker(const std::string& folder, int worker, int num_workers);
constexpr int kSkipped = 77;

}  // namespace lockstep::testing
