#pragma once

#include <vector>

#include "tests/golden/differences.h"

/// The rules of the table, a file for each topic.
namespace lockstep::golden {

void add_contexts(std::vector<Difference>& table);
void add_cross_device(std::vector<Difference>& table);
void add_rebatch_and_shard(std::vector<Difference>& table);
void add_reduce_gather(std::vector<Difference>& table);
void add_replica_context(std::vector<Difference>& table);
void add_resolvers(std::vector<Difference>& table);
void add_values(std::vector<Difference>& table);
void add_variables(std::vector<Difference>& table);

}  // namespace lockstep::golden
