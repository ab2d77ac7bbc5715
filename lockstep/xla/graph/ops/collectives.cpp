#include <numeric>

#include "lockstep/xla/graph/mlir/regions.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// The replica groups: one of all replicas. Where replicas are an axis of the device mesh, one group of devices for
/// each partition.
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

Value all_reduce(Combiner combiner, Value a, int replicas) {
  Value node = make_node(Op::AllReduce, combiner, a->dtype, a->shape, a);
  append(*node, replicas);
  node->needs_others = true;
  return node;
}

void write_all_reduce(Writer& w, const Node& node) {
  w.put(w.own_name(node), " = \"stablehlo.all_reduce\"(", w.operand(node, 0), ") <{", groups_text(node, w.options),
        "}> (", combining_region(node.kind_as<Combiner>(), node.dtype), ")", signature(node), "\n");
}

Value all_gather(Value a, int replicas) {
  Shape part{1};
  part.append(a->shape.begin(), a->shape.end());
  Shape shape = part;
  shape[0] = replicas;
  const Dtype dtype = a->dtype;
  Value node = make_node(Op::AllGather, dtype, shape, reshape(std::move(a), part));
  append(*node, replicas);
  node->needs_others = true;
  return node;
}

void write_all_gather(Writer& w, const Node& node) {
  w.put(w.own_name(node), " = \"stablehlo.all_gather\"(", w.operand(node, 0), ") <{all_gather_dim = 0 : i64, ",
        groups_text(node, w.options), "}>", signature(node), "\n");
}

}  // namespace lockstep::xla
