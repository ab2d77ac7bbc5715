#include "tests/golden/drivers.h"

#include <array>

namespace lockstep::golden {
namespace {

constexpr std::array kTopics{
    Topic{"devices", run_devices},
    Topic{"contexts", run_contexts},
    Topic{"values", run_values},
    Topic{"reduce_gather", run_reduce_gather},
    Topic{"replica_context", run_replica_context},
    Topic{"variables", run_variables},
    Topic{"variables_read", run_variables_read},
    Topic{"variables_write", run_variables_write},
    Topic{"cross_device", run_cross_device},
    Topic{"rebatch_and_shard", run_rebatch_and_shard},
    Topic{"rebatch_and_shard_workers", run_rebatch_and_shard_workers},
    Topic{"losses", run_losses},
    Topic{"training", run_training},
    Topic{"resolvers", run_resolvers},
};

}  // namespace

std::span<const Topic> topics() { return kTopics; }

}  // namespace lockstep::golden
