#include <numeric>

#include "lockstep/xla/graph/mlir/regions.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// The members of all groups, one group after the other: those of the node, or all replicas.
std::vector<int64_t> members_of(const Node& node) {
  const int64_t replicas = node.attributes[0];
  std::vector<int64_t> members(node.attributes.begin() + 1, node.attributes.end());
  if (!members.empty()) return members;
  members.resize(replicas);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

/// The replica groups. Where replicas are an axis of the device mesh, a group of devices for each group and partition.
std::string groups_text(const Node& node, const EmitOptions& options) {
  const int64_t replicas = node.attributes[0];
  const std::vector<int64_t> members = members_of(node);
  const int64_t num_groups = static_cast<int64_t>(members.size()) / replicas;
  const bool joins = joins_replicas(options.replicas, options.partitions);
  const int64_t partitions = joins ? options.partitions : 1;
  std::string groups;
  for (int64_t begin = 0; begin < static_cast<int64_t>(members.size()); begin += replicas) {
    for (int64_t partition = 0; partition < partitions; ++partition) {
      std::vector<int64_t> group;
      for (int64_t i = 0; i < replicas; ++i) group.push_back(members[begin + i] * partitions + partition);
      groups += (groups.empty() ? "" : ", ") + list_text(group);
    }
  }
  const std::string text =
      "replica_groups = dense<[" + groups + "]> : " + tensor_type("i64", {num_groups * partitions, replicas});
  if (!joins) return text;
  return text + ", channel_handle = #stablehlo.channel_handle<handle = " + std::to_string(node.index + 1) +
         ", type = 1>, use_global_device_ids";
}

}  // namespace

Value all_reduce(Combiner combiner, Value a, int replicas, Ints groups) {
  Value node = make_node(Op::AllReduce, combiner, a->dtype, a->shape, a);
  append(*node, replicas);
  append(*node, groups);
  node->needs_others = true;
  return node;
}

void write_all_reduce(Writer& w, const Node& node) {
  w.put(w.own_name(node), " = \"stablehlo.all_reduce\"(", w.operand(node, 0), ") <{", groups_text(node, w.options),
        "}> (", combining_region(node.kind_as<Combiner>(), node.dtype), ")", signature(node), "\n");
}

Value all_gather(Value a, int replicas, Ints groups) {
  Shape part{1};
  part.append(a->shape.begin(), a->shape.end());
  Shape shape = part;
  shape[0] = replicas;
  const Dtype dtype = a->dtype;
  Value node = make_node(Op::AllGather, dtype, shape, reshape(std::move(a), part));
  append(*node, replicas);
  append(*node, groups);
  node->needs_others = true;
  return node;
}

void write_all_gather(Writer& w, const Node& node) {
  w.put(w.own_name(node), " = \"stablehlo.all_gather\"(", w.operand(node, 0), ") <{all_gather_dim = 0 : i64, ",
        groups_text(node, w.options), "}>", signature(node), "\n");
}

}  // namespace lockstep::xla
