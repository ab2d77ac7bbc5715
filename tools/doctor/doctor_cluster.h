#pragma once

#include <iosfwd>

#include "lockstep/cluster/environment.h"
#include "tools/print_result.h"

/// `lockstep doctor --cluster`: the cluster that an environment describes, and the source of each value.
namespace lockstep::tools {

/// Returns the result:
///   - "looked_for": each kind of description that was looked for, and why it was chosen or not;
///   - "cluster", "tasks" (with address, whether it is this process, chief, the ids of its replicas) and "facts", where
///     there is a cluster;
///   - "place": number, workers and coordinator of this process, where it is a worker;
///   - "error", where a description is wrong.
Json examine_cluster(const Environment& variables = {});

/// Prints the result for people.
void print_cluster(const Json& result, std::ostream& out);

}  // namespace lockstep::tools
