#pragma once

#include "lockstep/xla/graph/mlir/writer.h"

/// Internal: the StableHLO text of each operation. Each function stands beside the builder of its operation.
namespace lockstep::xla {

/// Writes any operation except arguments and numbers, which emit.cpp writes.
void write_operation(Writer& writer, const Node& node);

void write_iota(Writer& writer, const Node& node);
void write_unary(Writer& writer, const Node& node);
void write_binary(Writer& writer, const Node& node);
void write_compare(Writer& writer, const Node& node);
void write_select(Writer& writer, const Node& node);
void write_convert(Writer& writer, const Node& node);
void write_broadcast(Writer& writer, const Node& node);
void write_reshape(Writer& writer, const Node& node);
void write_transpose(Writer& writer, const Node& node);
void write_slice(Writer& writer, const Node& node);
void write_dynamic_slice(Writer& writer, const Node& node);
void write_pad(Writer& writer, const Node& node);
void write_concatenate(Writer& writer, const Node& node);
void write_update_slice(Writer& writer, const Node& node);
void write_dynamic_update_slice(Writer& writer, const Node& node);
void write_reverse(Writer& writer, const Node& node);
void write_reduce(Writer& writer, const Node& node);
void write_dot(Writer& writer, const Node& node);
void write_convolution(Writer& writer, const Node& node);
void write_reduce_window(Writer& writer, const Node& node);
void write_window_max_index(Writer& writer, const Node& node);
void write_select_and_scatter(Writer& writer, const Node& node);
void write_take(Writer& writer, const Node& node);
void write_scatter(Writer& writer, const Node& node);
void write_sort(Writer& writer, const Node& node);
void write_random_bits(Writer& writer, const Node& node);
void write_scan(Writer& writer, const Node& node);
void write_scan_output(Writer& writer, const Node& node);
void write_all_reduce(Writer& writer, const Node& node);
void write_all_gather(Writer& writer, const Node& node);
void write_annotation(Writer& writer, const Node& node);

/// Whether a product of these operands must not round them (TF32, bfloat16).
inline bool keeps_full_precision(const Writer& writer, const Node& node) {
  return writer.options.full_precision && is_float(node.dtype);
}

}  // namespace lockstep::xla
