#pragma once

#include <span>
#include <string_view>

#include "tests/golden/harness.h"

/// One driver for each topic; each is a file in drivers/.
namespace lockstep::golden {

Outcome run_contexts(const Case& test_case);
Outcome run_cross_device(const Case& test_case);
Outcome run_devices(const Case& test_case);
Outcome run_losses(const Case& test_case);
Outcome run_rebatch_and_shard(const Case& test_case);
Outcome run_rebatch_and_shard_workers(const Case& test_case);
Outcome run_reduce_gather(const Case& test_case);
Outcome run_replica_context(const Case& test_case);
Outcome run_resolvers(const Case& test_case);
Outcome run_training(const Case& test_case);
Outcome run_values(const Case& test_case);
Outcome run_variables(const Case& test_case);
Outcome run_variables_read(const Case& test_case);
Outcome run_variables_write(const Case& test_case);

struct Topic {
  std::string_view name;
  Outcome (*run)(const Case&);
};

/// Returns every topic that has a driver.
std::span<const Topic> topics();

}  // namespace lockstep::golden
