#pragma once

#include <vector>

#include "lockstep/xla/engine/pending_work.h"

/// Internal: the collectives of replicas, compared before they are executed.
namespace lockstep::xla {

inline bool is_collective(const Node& node) { return node.op == Op::AllReduce || node.op == Op::AllGather; }

/// Throws a CollectiveError that names the first difference unless all replicas have made the same collectives, with
/// values of the same dtype and shape, in time. What they do with the results does not matter.
void check_same_collectives(const std::vector<PendingWork>& works);

/// Whether all replicas use the results of the same collectives at the same places of their graphs. Where they do not,
/// equal graphs are not one program.
bool use_same_collectives(const std::vector<PendingWork>& works);

}  // namespace lockstep::xla
