#pragma once

#include <span>
#include <string_view>

#include "tests/golden/harness.h"

/// One driver for each topic; each is a file in drivers/ with a namespace of its own.
namespace lockstep::golden {

namespace drivers::contexts {
Outcome run(const Case& test_case);
}
namespace drivers::cross_device {
Outcome run(const Case& test_case);
}
namespace drivers::devices {
Outcome run(const Case& test_case);
}
namespace drivers::losses {
Outcome run(const Case& test_case);
}
namespace drivers::multi_worker {
Outcome run(const Case& test_case);
/// What each of the processes does that `run` asks.
Outcome run_on_worker(const Case& test_case);
}  // namespace drivers::multi_worker
namespace drivers::rebatch_and_shard {
Outcome run(const Case& test_case);
}
namespace drivers::rebatch_and_shard_workers {
Outcome run(const Case& test_case);
}
namespace drivers::reduce_gather {
Outcome run(const Case& test_case);
}
namespace drivers::replica_context {
Outcome run(const Case& test_case);
}
namespace drivers::resolvers {
Outcome run(const Case& test_case);
}
namespace drivers::topology {
Outcome run(const Case& test_case);
}
namespace drivers::training {
Outcome run(const Case& test_case);
}
namespace drivers::values {
Outcome run(const Case& test_case);
}
namespace drivers::variables {
Outcome run(const Case& test_case);
}
namespace drivers::variables_read {
Outcome run(const Case& test_case);
}
namespace drivers::variables_write {
Outcome run(const Case& test_case);
}

struct Topic {
  std::string_view name;
  Outcome (*run)(const Case&);
};

/// Returns every topic that has a driver.
std::span<const Topic> topics();

}  // namespace lockstep::golden
