#include "lockstep/data/element/private_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/formats/new_tensor.h"
#include "lockstep/device/host_copier.h"

namespace lockstep::data::detail {
namespace {

/// A part that is at least this large is worth a buffer that is twice as large.
constexpr size_t kSmallExcess = 512;

bool is_aligned(const char* data, at::ScalarType dtype) {
  return reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) == 0;
}

void release_buffer(void* context) { delete static_cast<c10::intrusive_ptr<Buffer>*>(context); }

/// Returns a tensor of writable memory, which lives as long as the tensor.
at::Tensor tensor_in(c10::intrusive_ptr<Buffer> buffer, const char* data, const RowType& type) {
  // The buffer is writable, and nobody else has it.
  return at::for_blob(const_cast<char*>(data), type.sizes)  // NOLINT
      .context(new c10::intrusive_ptr<Buffer>(std::move(buffer)), release_buffer)
      .options(at::TensorOptions().dtype(type.dtype))
      .make_tensor();
}

/// Whether the memory of a tensor is pages of a file.
bool is_of_file(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.storage().data_ptr().get_deleter() != release_buffer) return false;
  const auto& buffer = *static_cast<c10::intrusive_ptr<Buffer>*>(tensor.storage().data_ptr().get_context());
  return buffer->held_bytes() == 0;
}

/// Calls `visit` with each buffer that the leaf points into.
template <class Visit>
void for_each_buffer(const Leaf& leaf, const Visit& visit) {
  if (const auto* row = leaf.as<Row>()) {
    if (row->buffer) visit(row->buffer);
  } else if (const auto* bytes = leaf.as<Bytes>()) {
    if (bytes->buffer()) visit(bytes->buffer());
  } else if (const auto* list = leaf.as<LeafList>()) {
    for (const Leaf& each : *list->leaves) for_each_buffer(each, visit);
  }
}

std::string_view bytes_of(const Row& row) { return {row.data, row.type->num_bytes}; }

at::Tensor copied(const Row& row) {
  if (is_aligned(row.data, row.type->dtype)) {
    if (auto pages = row.buffer->private_pages(bytes_of(row))) {
      const char* data = pages->data();
      return tensor_in(std::move(pages), data, *row.type);
    }
  }
  at::Tensor tensor = new_tensor(row.type->sizes, row.type->dtype);
  if (row.type->num_bytes > 0) std::memcpy(tensor.data_ptr(), row.data, row.type->num_bytes);
  if (any_bus_error()) row.buffer->check();
  return tensor;
}

at::Tensor taken(Row row) {
  const bool is_last = row.buffer->is_writable() && row.buffer.use_count() == 1;
  if (!is_last || row.type->num_bytes == 0 || !is_aligned(row.data, row.type->dtype)) return copied(row);
  return tensor_in(std::move(row.buffer), row.data, *row.type);
}

/// LibTorch itself refuses to write to tensors that take part in a gradient; a copy on an XLA device would be traced.
bool may_be_written(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.requires_grad() && (tensor.is_cpu() || tensor.is_cuda());
}

/// Whether a buffer holds much more memory than the `used` bytes of it.
bool has_excess(const Buffer& buffer, size_t used) { return buffer.held_bytes() > 2 * used + kSmallExcess; }

/// The same for a tensor that alone holds its storage: a crop of an image, a row of a batch.
bool has_excess(const at::Tensor& tensor) {
  return may_be_written(tensor) && tensor.layout() == at::kStrided && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && tensor.storage().nbytes() > 2 * tensor.nbytes() + kSmallExcess;
}

c10::intrusive_ptr<Buffer> copied_part(std::string_view part) {
  char* memory = nullptr;
  auto buffer = Buffer::allocate(part.size(), &memory);
  if (!part.empty()) std::memcpy(memory, part.data(), part.size());
  return buffer;
}

void move_to_own_memory(Row& row) {
  auto buffer = copied_part(bytes_of(row));
  if (any_bus_error()) row.buffer->check();
  row.buffer = std::move(buffer);
  row.data = row.buffer->data();
}

void move_to_own_memory(Bytes& bytes) {
  Bytes copy(bytes.view());
  if (any_bus_error()) bytes.buffer()->check();
  bytes = std::move(copy);
}

/// Calls `visit` on the leaves of a list, in a list of its own.
template <class Visit>
void visit_list(LeafList& list, Visit&& visit) {
  auto leaves = std::make_shared<std::vector<Leaf>>(*list.leaves);
  for (Leaf& leaf : *leaves) visit(leaf);
  list.leaves = std::move(leaves);
}

void lend(Leaf& leaf) {
  if (auto* list = leaf.as<LeafList>()) visit_list(*list, lend);
  const auto* tensor = leaf.as<at::Tensor>();
  if (tensor == nullptr || !is_dense_on_cpu(*tensor)) return;
  auto buffer = buffer_of(*tensor);
  const char* data = buffer->data();
  leaf = Row{c10::make_intrusive<RowType>(tensor->scalar_type(), tensor->sizes()), std::move(buffer), data};
}

void keep(Leaf& leaf) {
  if (auto* row = leaf.as<Row>()) {
    const bool lives_elsewhere = row->buffer->held_bytes() == 0 && row->type->num_bytes > 0;
    if (lives_elsewhere || has_excess(*row->buffer, row->type->num_bytes)) move_to_own_memory(*row);
  } else if (auto* bytes = leaf.as<Bytes>()) {
    if (bytes->empty() || bytes->buffer() == nullptr) return;
    const bool lives_elsewhere = bytes->buffer()->held_bytes() == 0;
    if (lives_elsewhere || has_excess(*bytes->buffer(), bytes->size())) move_to_own_memory(*bytes);
  } else if (auto* list = leaf.as<LeafList>()) {
    visit_list(*list, keep);
  } else if (auto* tensor = leaf.as<at::Tensor>()) {
    if (may_be_written(*tensor) && (!lockstep::detail::is_only_handle(*tensor) || is_of_file(*tensor)))
      *tensor = tensor->clone();
    if (has_excess(*tensor)) *tensor = tensor->clone();
  }
}

bool has_excess(const Leaf& leaf) {
  if (const auto* row = leaf.as<Row>()) return has_excess(*row->buffer, row->type->num_bytes);
  if (const auto* bytes = leaf.as<Bytes>()) {
    return bytes->buffer() != nullptr && has_excess(*bytes->buffer(), bytes->size());
  }
  if (const auto* tensor = leaf.as<at::Tensor>()) return has_excess(*tensor);
  const auto* list = leaf.as<LeafList>();
  return list != nullptr &&
         std::any_of(list->leaves->begin(), list->leaves->end(), [](const Leaf& each) { return has_excess(each); });
}

void release(Leaf& leaf) {
  if (!has_excess(leaf)) return;
  if (auto* row = leaf.as<Row>()) {
    move_to_own_memory(*row);
  } else if (auto* bytes = leaf.as<Bytes>()) {
    move_to_own_memory(*bytes);
  } else if (auto* tensor = leaf.as<at::Tensor>()) {
    *tensor = tensor->clone();
  } else if (auto* list = leaf.as<LeafList>()) {
    visit_list(*list, release);
  }
}

}  // namespace

at::Tensor take_tensor(Leaf& leaf) {
  if (auto* tensor = leaf.as<at::Tensor>()) return std::move(*tensor);
  auto* row = leaf.as<Row>();
  return row != nullptr ? taken(std::move(*row)) : to_tensor(leaf);
}

at::Tensor copied_tensor(const Leaf& leaf) {
  if (const auto* tensor = leaf.as<at::Tensor>()) return may_be_written(*tensor) ? tensor->clone() : *tensor;
  const auto* row = leaf.as<Row>();
  return row != nullptr ? copied(*row) : to_tensor(leaf);
}

void check_read(const Leaf& leaf) {
  for_each_buffer(leaf, [](const auto& buffer) { buffer->check(); });
}

MappedReads::MappedReads(const Element& element)
    : failed_(bus_error_count.load(std::memory_order_relaxed)), failed_on_thread_(bus_errors_of_thread()) {
  for (const Leaf& leaf : element.leaves) {
    for_each_buffer(leaf, [&](const auto& buffer) {
      if (buffer->may_fail()) files_.push_back(buffer);
    });
  }
  if (failed_ == 0) return;
  for (const auto& file : files_) file->check();
}

void MappedReads::check(const char* operation) const {
  if (bus_error_count.load(std::memory_order_relaxed) == failed_) return;
  for (const auto& file : files_) file->check();
  LOCKSTEP_CHECK_DATA(bus_errors_of_thread() == failed_on_thread_, "[", operation,
                      "] a file could not be read while it was mapped: ", last_bus_error_of_thread(),
                      " (it was cut, or its storage failed)");
}

void own_tensors(Element& element) { own_tensors(element, false, nullptr); }

void own_tensors(Element& element, bool pin_memory, lockstep::detail::HostCopier* copier) {
  for (Leaf& leaf : element.leaves) {
    auto* tensor = leaf.as<at::Tensor>();
    if (tensor == nullptr || !may_be_written(*tensor) || lockstep::detail::is_only_handle(*tensor)) continue;
    const bool is_plain = copier != nullptr && lockstep::detail::is_plain_on_cpu(*tensor);
    *tensor = is_plain ? copier->clone(*tensor, pin_memory) : tensor->clone();
  }
}

BorrowedTensors::BorrowedTensors(Element& in) {
  for (Leaf& leaf : in.leaves) {
    if (leaf.as<Row>() != nullptr) leaf = to_tensor(leaf);
    const auto* tensor = leaf.as<at::Tensor>();
    if (tensor == nullptr || !tensor->defined()) continue;
    tensors_.push_back({*tensor, tensor->is_inference() ? 0 : static_cast<uint32_t>(tensor->_version())});
  }
}

void BorrowedTensors::finish(Element& out) const {
  for (const Borrowed& borrowed : tensors_) {
    const bool is_unchanged =
        borrowed.tensor.is_inference() || static_cast<uint32_t>(borrowed.tensor._version()) == borrowed.version;
    LOCKSTEP_CHECK_VALUE(is_unchanged,
                         "[map] a function with MapOptions::read_only must not write to its tensors: it wrote to ",
                         describe(Leaf(borrowed.tensor)), ", and the source has changed; leave out read_only");
  }
  for (Leaf& leaf : out.leaves) {
    auto* tensor = leaf.as<at::Tensor>();
    if (tensor == nullptr || !may_be_written(*tensor) || !tensor->has_storage()) continue;
    const bool is_borrowed = std::any_of(tensors_.begin(), tensors_.end(), [&](const Borrowed& borrowed) {
      return borrowed.tensor.has_storage() && borrowed.tensor.storage().is_alias_of(tensor->storage());
    });
    if (is_borrowed) *tensor = tensor->clone();
  }
}

void lend_tensors(Element& element) {
  for (Leaf& leaf : element.leaves) lend(leaf);
}

void keep_in_memory(Element& element) {
  for (Leaf& leaf : element.leaves) keep(leaf);
}

void release_excess(Element& element) {
  for (Leaf& leaf : element.leaves) release(leaf);
}

}  // namespace lockstep::data::detail
