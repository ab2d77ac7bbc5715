#include "lockstep/data/transforms/batching/rows.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"

namespace lockstep::data::detail {
namespace {

/// The size of the leaf's first dimension; nothing where it has none.
std::optional<int64_t> rows_of_leaf(const Leaf& leaf) {
  if (const auto* tensor = leaf.as<at::Tensor>()) {
    return tensor->defined() && tensor->dim() > 0 ? std::optional(tensor->size(0)) : std::nullopt;
  }
  if (const auto* row = leaf.as<Row>()) {
    return row->type->sizes.empty() ? std::nullopt : std::optional(row->type->sizes.front());
  }
  if (const auto* list = leaf.as<LeafList>()) return static_cast<int64_t>(list->leaves->size());
  return std::nullopt;
}

Leaf slice_leaf(const Leaf& leaf, int64_t start, int64_t count) {
  if (rows_of_leaf(leaf) == count) return leaf;
  if (const auto* tensor = leaf.as<at::Tensor>()) return tensor->narrow(0, start, count);
  if (const auto* row = leaf.as<Row>()) {
    auto sizes = row->type->sizes;
    const size_t row_bytes = sizes.front() == 0 ? 0 : row->type->num_bytes / static_cast<size_t>(sizes.front());
    sizes.front() = count;
    return Row{c10::make_intrusive<RowType>(row->type->dtype, sizes), row->buffer,
               row->data + static_cast<size_t>(start) * row_bytes};
  }
  const auto& leaves = *leaf.as<LeafList>()->leaves;
  return LeafList{std::make_shared<const std::vector<Leaf>>(leaves.begin() + start, leaves.begin() + start + count)};
}

Leaf concat_lists(const std::vector<Element>& pieces, size_t index, const char* operation) {
  auto joined = std::make_shared<std::vector<Leaf>>();
  for (const Element& piece : pieces) {
    const auto* list = piece.leaves[index].as<LeafList>();
    LOCKSTEP_CHECK_VALUE(list != nullptr, "[", operation, "] batches must have the same parts: part ", index, " is ",
                         describe(pieces.front().leaves[index]), " in one and ", describe(piece.leaves[index]),
                         " in the next");
    joined->insert(joined->end(), list->leaves->begin(), list->leaves->end());
  }
  return LeafList{std::move(joined)};
}

Leaf concat_leaves(const std::vector<Element>& pieces, size_t index, const char* operation) {
  const Leaf& first = pieces.front().leaves[index];
  if (first.as<LeafList>() != nullptr) return concat_lists(pieces, index, operation);
  std::vector<at::Tensor> tensors;
  bool pinned = false;
  for (const Element& piece : pieces) {
    const Leaf& leaf = piece.leaves[index];
    const auto rows = rows_of_leaf(leaf);
    LOCKSTEP_CHECK_VALUE(rows && leaf.as<LeafList>() == nullptr, "[", operation,
                         "] batches must have the same parts: part ", index, " is ", describe(first), " in one and ",
                         describe(leaf), " in the next");
    at::Tensor tensor = to_tensor(leaf);
    const bool fits = tensors.empty() || (tensor.scalar_type() == tensors.front().scalar_type() &&
                                          tensor.sizes().slice(1) == tensors.front().sizes().slice(1));
    LOCKSTEP_CHECK_VALUE(fits, "[", operation, "] rows of one batch must have one shape and dtype: some come from ",
                         describe(first), ", others from ", describe(leaf));
    // Only tensors can be in page-locked memory; rows never are.
    pinned = pinned || (leaf.as<at::Tensor>() != nullptr && tensor.device().is_cpu() && tensor.is_pinned());
    tensors.push_back(std::move(tensor));
  }
  at::Tensor joined;
  if (pinned) {
    joined = at::empty({0}, tensors.front().options().pinned_memory(true));
    at::cat_out(joined, tensors);
  } else {
    joined = at::cat(tensors);
  }
  for (const Element& piece : pieces) {
    if (any_bus_error()) check_read(piece.leaves[index]);
  }
  return joined;
}

}  // namespace

int64_t num_rows(const Element& batch, const char* operation) {
  std::optional<int64_t> rows;
  for (const Leaf& leaf : batch.leaves) {
    const auto found = rows_of_leaf(leaf);
    LOCKSTEP_CHECK_VALUE(found, "[", operation, "] elements must be batches, but a part is ", describe(leaf),
                         "; call batch first");
    LOCKSTEP_CHECK_VALUE(!rows || rows == found, "[", operation,
                         "] all parts of a batch must have as many rows: rows=", *rows, " and ", *found);
    rows = found;
  }
  LOCKSTEP_CHECK_VALUE(rows, "[", operation, "] elements must be batches, but one has no parts at all");
  return *rows;
}

void slice_rows(const Element& batch, int64_t start, int64_t count, Element& result) {
  Element slice;
  for (const Leaf& leaf : batch.leaves) slice.leaves.push_back(slice_leaf(leaf, start, count));
  slice.layout = batch.layout;
  result = std::move(slice);
}

void concat_rows(std::vector<Element>& pieces, const char* operation, Element& result) {
  if (pieces.size() == 1) {
    result = std::move(pieces.front());
    return;
  }
  const Element& first = pieces.front();
  for (const Element& piece : pieces) {
    LOCKSTEP_CHECK_VALUE(piece.leaves.size() == first.leaves.size() && same_layout(piece, first), "[", operation,
                         "] batches must have the same parts and keys: parts=", first.leaves.size(), " and ",
                         piece.leaves.size());
  }
  Element joined;
  for (size_t i = 0; i < first.leaves.size(); ++i) joined.leaves.push_back(concat_leaves(pieces, i, operation));
  joined.layout = first.layout;
  result = std::move(joined);
}

std::optional<Element> empty_rows(const ElementSpec& spec) {
  if (!spec.leaves) return std::nullopt;
  Element empty;
  empty.layout = spec.layout;
  for (const LeafSpec& leaf : *spec.leaves) {
    if (leaf.kind == LeafSpec::Kind::List) {
      empty.leaves.push_back(LeafList{std::make_shared<const std::vector<Leaf>>()});
      continue;
    }
    const bool known =
        leaf.kind == LeafSpec::Kind::Tensor && leaf.dtype && leaf.shape.has_rank() && leaf.shape.rank() > 0;
    if (!known) return std::nullopt;
    std::vector<int64_t> sizes{0};
    for (int64_t i = 1; i < leaf.shape.rank(); ++i) sizes.push_back(leaf.shape.dims()[i].value_or(0));
    empty.leaves.push_back(at::empty(sizes, at::TensorOptions().dtype(*leaf.dtype)));
  }
  return empty;
}

void check_has_rows(const ElementSpec& spec, const char* operation) {
  if (!spec.leaves) return;
  for (const LeafSpec& leaf : *spec.leaves) {
    const bool is_scalar = leaf.shape.has_rank() && leaf.shape.rank() == 0;
    LOCKSTEP_CHECK_VALUE(!is_scalar, "[", operation,
                         "] elements must be batches, but a part is a scalar: element_spec=", spec,
                         "; call batch first");
  }
}

BatchRows::BatchRows(const Element& batch, const char* operation)
    : layout_(batch.layout), size_(num_rows(batch, operation)) {
  for (const Leaf& leaf : batch.leaves) {
    if (const auto* list = leaf.as<LeafList>()) {
      columns_.emplace_back(*list);
    } else if (const auto* row = leaf.as<Row>()) {
      columns_.emplace_back(RowsOf(*row));
    } else {
      const at::Tensor tensor = to_tensor(leaf);
      const bool on_cpu = tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.requires_grad();
      // The memory of the batch is freed with its last row; `release_excess` copies rows that wait in buffers.
      columns_.emplace_back(on_cpu ? RowsOf(tensor.contiguous(), tensor.nbytes()) : RowsOf(tensor));
    }
  }
}

void BatchRows::row(int64_t index, Element& result) const {
  result.clear();
  for (const auto& column : columns_) {
    if (const auto* rows = std::get_if<RowsOf>(&column)) {
      result.leaves.push_back((*rows)[index]);
    } else {
      result.leaves.push_back((*std::get<LeafList>(column).leaves)[static_cast<size_t>(index)]);
    }
  }
  result.layout = layout_;
}

}  // namespace lockstep::data::detail
