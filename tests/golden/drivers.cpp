#include "tests/golden/drivers.h"

#include <array>

namespace lockstep::golden {
namespace {

constexpr std::array kTopics{
    Topic{"devices", drivers::devices::run},
    Topic{"contexts", drivers::contexts::run},
    Topic{"values", drivers::values::run},
    Topic{"reduce_gather", drivers::reduce_gather::run},
    Topic{"replica_context", drivers::replica_context::run},
    Topic{"variables", drivers::variables::run},
    Topic{"variables_read", drivers::variables_read::run},
    Topic{"variables_write", drivers::variables_write::run},
    Topic{"cross_device", drivers::cross_device::run},
    Topic{"rebatch_and_shard", drivers::rebatch_and_shard::run},
    Topic{"rebatch_and_shard_workers", drivers::rebatch_and_shard_workers::run},
    Topic{"multi_worker", drivers::multi_worker::run},
    Topic{"losses", drivers::losses::run},
    Topic{"training", drivers::training::run},
    Topic{"resolvers", drivers::resolvers::run},
    Topic{"topology", drivers::topology::run},
};

}  // namespace

std::span<const Topic> topics() { return kTopics; }

}  // namespace lockstep::golden
