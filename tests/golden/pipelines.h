#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "tests/golden/harness.h"

/// Datasets from their JSON: "Input pipelines" in data/README.md.
namespace lockstep::golden {

/// Makes the dataset that the field `pipeline` of a case describes, with the case's `policy` as its option.
data::NodePtr pipeline_of(const Case& test_case);

/// Returns the policy of that name: "OFF", "AUTO", "FILE", "DATA" or "HINT".
data::AutoShardPolicy policy_named(const std::string& name);

/// Writes an element as its ids: a list (or a number) for one part, a list of them for several, an object for a
/// mapping.
Json ids_of(const data::Element& element);

/// Reads all elements of a node and writes their ids.
Json ids_of_all(const data::Node& node);

/// Writes the ids of the next step, a list with those of each local replica, or null at the end.
Json next_ids(detail::StepIterator& iterator);

/// Writes the ids of each step, of no more than `max_steps`.
Json ids_of_steps(const std::shared_ptr<const detail::DistributedInput>& input, size_t max_steps);

/// Writes "shape": a list with null for an unknown dimension, or null.
Json to_json(const data::PartialShape& shape);

/// Writes what is known of the element of each replica; one replica's bare.
Json to_json(const std::vector<data::ElementSpec>& replicas);

}  // namespace lockstep::golden
