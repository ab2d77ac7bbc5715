#include "lockstep/data/transforms/batching/assemble.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"

namespace lockstep::data::detail {
namespace {

/// A leaf as part of a batch: dense memory to copy, or a value to store.
struct Dense {
  at::ScalarType dtype;
  at::IntArrayRef sizes;
  const char* data;
  size_t num_bytes;
};

std::optional<Dense> dense_on_cpu(const Leaf& leaf) {
  if (const auto* row = leaf.as<Row>()) {
    return Dense{row->type->dtype, row->type->sizes, row->data, row->type->num_bytes};
  }
  if (const auto* number = leaf.as<Number>()) {
    return Dense{number->dtype, {}, number->bytes.data(), c10::elementSize(number->dtype)};
  }
  const auto* tensor = leaf.as<at::Tensor>();
  if (tensor == nullptr || !tensor->defined() || !tensor->device().is_cpu() || tensor->layout() != at::kStrided ||
      tensor->requires_grad()) {
    return std::nullopt;
  }
  // The data of a tensor that is not row-major must be copied by LibTorch: no pointer.
  const bool is_plain = tensor->is_contiguous() && !tensor->is_conj() && !tensor->is_neg();
  const char* data = is_plain ? static_cast<const char*>(tensor->data_ptr()) : nullptr;
  return Dense{tensor->scalar_type(), tensor->sizes(), data, tensor->nbytes()};
}

}  // namespace

/// One leaf of the batch: a tensor that is being filled, or stored leaves.
struct BatchAssembler::Column {
  at::Tensor tensor;
  at::ScalarType dtype = at::kFloat;
  c10::SmallVector<int64_t, 4> row_sizes;
  char* data = nullptr;
  size_t row_bytes = 0;
  std::vector<Leaf> stored;
};

BatchAssembler::BatchAssembler(Options options) : options_(options) {}
BatchAssembler::~BatchAssembler() = default;
BatchAssembler::BatchAssembler(BatchAssembler&&) noexcept = default;
BatchAssembler& BatchAssembler::operator=(BatchAssembler&&) noexcept = default;

void BatchAssembler::start(const Element& first) {
  columns_ = std::vector<Column>(first.leaves.size());
  layout_ = first.layout;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto dense = dense_on_cpu(first.leaves[i]);
    Column& column = columns_[i];
    if (!dense) {
      column.stored.reserve(options_.capacity);
      continue;
    }
    column.dtype = dense->dtype;
    column.row_sizes.assign(dense->sizes.begin(), dense->sizes.end());
    c10::SmallVector<int64_t, 5> sizes{options_.capacity};
    sizes.append(dense->sizes.begin(), dense->sizes.end());
    column.tensor = at::empty(sizes, at::TensorOptions().dtype(dense->dtype).pinned_memory(options_.pin_memory));
    column.data = static_cast<char*>(column.tensor.data_ptr());
    column.row_bytes = dense->num_bytes;
  }
}

void BatchAssembler::add(Element& element) {
  if (size_ == 0) start(element);
  const bool same_structure = element.leaves.size() == columns_.size() &&
                              (element.layout == layout_ || (element.layout && layout_ && *element.layout == *layout_));
  LOCKSTEP_CHECK_VALUE(same_structure, "[", options_.operation,
                       "] all elements of a batch must have the same parts: element ", size_, " of the batch has ",
                       element.leaves.size(), ", the first had ", columns_.size(), " or other keys");
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& column = columns_[i];
    Leaf& leaf = element.leaves[i];
    if (column.data == nullptr && !column.tensor.defined()) {
      column.stored.resize(size_);  // removes the leaves of an element that did not fit
      column.stored.push_back(std::move(leaf));
      continue;
    }
    const auto dense = dense_on_cpu(leaf);
    LOCKSTEP_CHECK_VALUE(dense && dense->dtype == column.dtype && dense->sizes == at::IntArrayRef(column.row_sizes),
                         "[", options_.operation, "] all elements of a batch must have one shape and dtype: element ",
                         size_, " of the batch is ", describe(leaf), ", the first was ",
                         describe(Leaf(column.tensor.select(0, 0))),
                         "; use padded_batch for tensors of different sizes");
    if (column.row_bytes == 0) continue;
    if (dense->data != nullptr) {
      std::memcpy(column.data + size_ * column.row_bytes, dense->data, column.row_bytes);
      if (any_bus_error()) check_read(leaf);
    } else {
      column.tensor.select(0, size_).copy_(*leaf.as<at::Tensor>());
    }
  }
  ++size_;
}

void BatchAssembler::finish(Element& batch) {
  batch.clear();
  for (Column& column : columns_) {
    if (column.tensor.defined()) {
      batch.leaves.push_back(size_ == options_.capacity ? std::move(column.tensor) : column.tensor.narrow(0, 0, size_));
    } else if (column.stored.front().as<at::Tensor>() != nullptr) {
      std::vector<at::Tensor> tensors;
      for (const Leaf& leaf : column.stored) tensors.push_back(to_tensor(leaf));
      batch.leaves.push_back(at::stack(tensors));
    } else {
      batch.leaves.push_back(LeafList{std::make_shared<const std::vector<Leaf>>(std::move(column.stored))});
    }
  }
  batch.layout = std::move(layout_);
  columns_.clear();
  size_ = 0;
}

}  // namespace lockstep::data::detail
