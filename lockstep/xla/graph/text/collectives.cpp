#include <numeric>

#include "lockstep/xla/graph/text/regions.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

/// One group of all replicas; each partition has its own. Where replicas are an axis of the mesh, groups are of
/// devices.
std::string groups_text(const Node& node, const EmitOptions& options) {
  const int64_t replicas = node.attributes[0];
  if (!joins_replicas(options.replicas, options.partitions)) {
    std::vector<int64_t> group(replicas);
    std::iota(group.begin(), group.end(), 0);
    return "replica_groups = dense<[" + list_text(group) + "]> : " + tensor_type("i64", {1, replicas});
  }
  std::string groups;
  for (int64_t partition = 0; partition < options.partitions; ++partition) {
    std::vector<int64_t> group;
    for (int64_t replica = 0; replica < replicas; ++replica) group.push_back(replica * options.partitions + partition);
    groups += (partition > 0 ? ", " : "") + list_text(group);
  }
  return "replica_groups = dense<[" + groups + "]> : " + tensor_type("i64", {options.partitions, replicas}) +
         ", channel_handle = #stablehlo.channel_handle<handle = " + std::to_string(node.index + 1) +
         ", type = 1>, use_global_device_ids";
}

}  // namespace

void write_collective(Writer& w, const Node& node) {
  const std::string groups = groups_text(node, w.options);
  if (node.op == Op::AllReduce) {
    w.put(w.own_name(node), " = \"stablehlo.all_reduce\"(", w.operand(node, 0), ") <{", groups, "}> (",
          combining_region(node.kind, node.dtype), ")", signature(node), "\n");
  } else {
    w.put(w.own_name(node), " = \"stablehlo.all_gather\"(", w.operand(node, 0), ") <{all_gather_dim = 0 : i64, ",
          groups, "}>", signature(node), "\n");
  }
}

}  // namespace lockstep::xla
