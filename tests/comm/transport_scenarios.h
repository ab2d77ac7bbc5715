#pragma once

#include <string>

/// What the processes of transport_test.cpp do. Each scenario is run by all workers at once; it throws where the
/// transport misbehaves.
namespace lockstep::tests {

/// Runs the scenarios of these names, separated by commas, as a worker of a job in that folder, over that engine. Each
/// scenario has a transport of its own. Returns the process's exit status.
int run_scenarios(const std::string& names, const std::string& engine, const std::string& folder, int worker,
                  int num_workers);

/// Sends messages between GPUs, as the worker of a job in that folder. Returns the process's exit status, which is
/// kSkipped where NCCL refuses two workers on one GPU.
int run_nccl_worker(const std::string& folder, int worker, int num_workers);
constexpr int kSkipped = 77;

}  // namespace lockstep::tests
