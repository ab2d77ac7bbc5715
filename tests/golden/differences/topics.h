#pragma once

#include <vector>

#include "tests/golden/differences.h"

/// The rules of the table, a file with a namespace of its own for each topic.
namespace lockstep::golden {

namespace rules::contexts {
void add(std::vector<Difference>& table);
}
namespace rules::cross_device {
void add(std::vector<Difference>& table);
}
namespace rules::multi_worker {
void add(std::vector<Difference>& table);
}
namespace rules::rebatch_and_shard {
void add(std::vector<Difference>& table);
}
namespace rules::reduce_gather {
void add(std::vector<Difference>& table);
}
namespace rules::replica_context {
void add(std::vector<Difference>& table);
}
namespace rules::resolvers {
void add(std::vector<Difference>& table);
}
namespace rules::topology {
void add(std::vector<Difference>& table);
}
namespace rules::training {
void add(std::vector<Difference>& table);
}
namespace rules::values {
void add(std::vector<Difference>& table);
}
namespace rules::variables {
void add(std::vector<Difference>& table);
}

}  // namespace lockstep::golden
