#include <numeric>

#include "lockstep/xla/graph/text/regions.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

/// One group of all replicas; each partition has its own.
std::string groups_text(int64_t replicas) {
  std::vector<int64_t> group(replicas);
  std::iota(group.begin(), group.end(), 0);
  return "replica_groups = dense<[" + list_text(group) + "]> : " + tensor_type("i64", {1, replicas});
}

}  // namespace

void write_collective(Writer& w, const Node& node) {
  const std::string groups = groups_text(node.attributes[0]);
  if (node.op == Op::AllReduce) {
    w.put(w.own_name(node), " = \"stablehlo.all_reduce\"(", w.operand(node, 0), ") <{", groups, "}> (",
          combining_region(node.kind, node.dtype), ")", signature(node), "\n");
  } else {
    w.put(w.own_name(node), " = \"stablehlo.all_gather\"(", w.operand(node, 0), ") <{all_gather_dim = 0 : i64, ",
          groups, "}>", signature(node), "\n");
  }
}

}  // namespace lockstep::xla
