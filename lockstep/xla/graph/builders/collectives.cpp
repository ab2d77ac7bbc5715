#include "lockstep/xla/graph/builders/make_node.h"

namespace lockstep::xla {

Value all_reduce(const char* kind, Value a, int replicas) {
  Value node = make_node(Op::AllReduce, a->dtype, a->shape, a, kind);
  append(*node, replicas);
  node->needs_others = true;
  return node;
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

}  // namespace lockstep::xla
