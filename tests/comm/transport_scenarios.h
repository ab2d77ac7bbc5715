#pragma once

#include <string>

/// What the processes of transport_test.cpp do. Each scenario is run by all workers at once; it throws where the
/// transport did not do as it should.
namespace lockstep::testing {

/// Runs those of these names, with commas between them, as the worker of a job in that folder, over that engine. Each
/// has a transport of its own. Returns the process's exit status.
int run_scenarios(const std::string& names, const std::string& engine, const std::string& folder, int worker,
                  int num_workers);

/// Sends messages between GPUs, as the worker of a job in that folder. Returns the process's exit status, which is
/// kSkipped where NCCL does not want two workers on one card.
int run_nccl_worker(const std::string& folder, int worker, int num_workers);
constexpr int kSkipped = 77;

}  // namespace lockstep::testing
