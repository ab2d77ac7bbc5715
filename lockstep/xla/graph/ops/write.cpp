#include "lockstep/xla/graph/ops/write.h"

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

using WriteOp = void (*)(Writer&, const Node&);

WriteOp writer_of(Op op) {
  switch (op) {
    case Op::Iota:
      return write_iota;
    case Op::Unary:
      return write_unary;
    case Op::Binary:
      return write_binary;
    case Op::Compare:
      return write_compare;
    case Op::Select:
      return write_select;
    case Op::Convert:
      return write_convert;
    case Op::Broadcast:
      return write_broadcast;
    case Op::Reshape:
      return write_reshape;
    case Op::Transpose:
      return write_transpose;
    case Op::Slice:
      return write_slice;
    case Op::DynamicSlice:
      return write_dynamic_slice;
    case Op::Pad:
      return write_pad;
    case Op::Concatenate:
      return write_concatenate;
    case Op::UpdateSlice:
      return write_update_slice;
    case Op::DynamicUpdateSlice:
      return write_dynamic_update_slice;
    case Op::Reverse:
      return write_reverse;
    case Op::Reduce:
      return write_reduce;
    case Op::Dot:
      return write_dot;
    case Op::Convolution:
      return write_convolution;
    case Op::ReduceWindow:
      return write_reduce_window;
    case Op::WindowMaxIndex:
      return write_window_max_index;
    case Op::SelectAndScatter:
      return write_select_and_scatter;
    case Op::Take:
      return write_take;
    case Op::Scatter:
      return write_scatter;
    case Op::Sort:
      return write_sort;
    case Op::RandomBits:
      return write_random_bits;
    case Op::Scan:
      return write_scan;
    case Op::ScanOutput:
      return write_scan_output;
    case Op::AllReduce:
      return write_all_reduce;
    case Op::AllGather:
      return write_all_gather;
    case Op::Annotation:
      return write_annotation;
    case Op::Argument:
    case Op::Number:
    case Op::Parameter:
      break;
  }
  return nullptr;
}

}  // namespace

void write_operation(Writer& writer, const Node& node) {
  const WriteOp write = writer_of(node.op);
  LOCKSTEP_ASSERT(write != nullptr, describe(node));
  write(writer, node);
}

}  // namespace lockstep::xla
