#include "lockstep/data/element/leaf.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>
#include <c10/util/typeid.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"

namespace lockstep::data {

RowType::RowType(at::ScalarType dtype, at::IntArrayRef sizes)
    : dtype(dtype),
      sizes(sizes.begin(), sizes.end()),
      num_bytes(static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype)) {}

namespace detail {
namespace {

class TensorBuffer final : public Buffer {
 public:
  TensorBuffer(at::Tensor tensor, size_t held_bytes) : tensor_(std::move(tensor)), held_bytes_(held_bytes) {}
  const char* data() const override { return static_cast<const char*>(tensor_.data_ptr()); }
  size_t size() const override { return tensor_.nbytes(); }
  size_t held_bytes() const override { return held_bytes_; }

 private:
  at::Tensor tensor_;
  size_t held_bytes_;
};

/// Returns a tensor that shares the memory of a row where alignment allows, otherwise a copy.
at::Tensor materialise(const Row& row) {
  const auto options = at::TensorOptions().dtype(row.type->dtype);
  if (reinterpret_cast<uintptr_t>(row.data) % c10::elementSize(row.type->dtype) == 0 && row.type->num_bytes > 0) {
    return at::from_blob(
        const_cast<char*>(row.data), row.type->sizes, [buffer = row.buffer](void*) {}, options);  // NOLINT
  }
  at::Tensor tensor = at::empty(row.type->sizes, options);
  if (row.type->num_bytes > 0) std::memcpy(tensor.data_ptr(), row.data, row.type->num_bytes);
  return tensor;
}

at::Tensor materialise(const Number& number) {
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(number.dtype));
  std::memcpy(tensor.data_ptr(), number.bytes.data(), c10::elementSize(number.dtype));
  return tensor;
}

template <class T>
T number_as(const Number& number) {
  T result{};
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, number.dtype, "number", [&] {
    scalar_t value{};
    std::memcpy(&value, number.bytes.data(), sizeof(value));
    result = static_cast<T>(value);
  });
  return result;
}

std::string describe_dense(at::ScalarType dtype, at::IntArrayRef sizes) {
  return c10::str("a ", dtype_name(dtype), " tensor of shape ", sizes);
}

}  // namespace

bool is_dense_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() && tensor.is_contiguous() &&
         !tensor.requires_grad() && !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg();
}

c10::intrusive_ptr<Buffer> buffer_of(const at::Tensor& tensor, size_t held_bytes) {
  return c10::make_intrusive<TensorBuffer>(tensor, held_bytes);
}

RowsOf::RowsOf(at::Tensor tensor, size_t held_bytes) : tensor_(std::move(tensor)), size_(tensor_.size(0)) {
  if (!is_dense_on_cpu(tensor_)) return;
  type_ = c10::make_intrusive<RowType>(tensor_.scalar_type(), tensor_.sizes().slice(1));
  buffer_ = buffer_of(tensor_, held_bytes);
  data_ = buffer_->data();
}

RowsOf::RowsOf(const Row& rows)
    : size_(rows.type->sizes.front()),
      type_(c10::make_intrusive<RowType>(rows.type->dtype, at::IntArrayRef(rows.type->sizes).slice(1))),
      buffer_(rows.buffer),
      data_(rows.data) {}

Leaf RowsOf::operator[](int64_t index) const {
  if (!type_) return tensor_.select(0, index);
  const char* data = data_ + static_cast<size_t>(index) * type_->num_bytes;
  if (!type_->sizes.empty()) return Row{type_, buffer_, data};
  Number number{type_->dtype, {}};
  if (type_->num_bytes > number.bytes.size()) return Row{type_, buffer_, data};
  std::memcpy(number.bytes.data(), data, type_->num_bytes);
  return number;
}

at::Tensor to_tensor(const Leaf& leaf) {
  if (const auto* tensor = leaf.as<at::Tensor>()) return *tensor;
  if (const auto* row = leaf.as<Row>()) return materialise(*row);
  if (const auto* number = leaf.as<Number>()) return materialise(*number);
  fail_leaf("a tensor", leaf);
}

const Bytes& to_bytes(const Leaf& leaf) {
  const auto* bytes = leaf.as<Bytes>();
  if (bytes == nullptr) fail_leaf("bytes", leaf);
  return *bytes;
}

Number to_number(const Leaf& leaf) {
  if (const auto* number = leaf.as<Number>()) return *number;
  const bool is_tensor = leaf.as<at::Tensor>() != nullptr || leaf.as<Row>() != nullptr;
  if (!is_tensor) fail_leaf("a number", leaf);
  const at::Tensor tensor = to_tensor(leaf).cpu();
  if (tensor.numel() != 1 || c10::elementSize(tensor.scalar_type()) > 8) fail_leaf("a number", leaf);
  Number number{tensor.scalar_type(), {}};
  std::memcpy(number.bytes.data(), tensor.data_ptr(), c10::elementSize(tensor.scalar_type()));
  return number;
}

double number_as_double(const Number& number) { return number_as<double>(number); }
int64_t number_as_int64(const Number& number) { return number_as<int64_t>(number); }

std::string describe(const Leaf& leaf) {
  if (const auto* tensor = leaf.as<at::Tensor>()) {
    return tensor->defined() ? describe_dense(tensor->scalar_type(), tensor->sizes()) : "an undefined tensor";
  }
  if (const auto* row = leaf.as<Row>()) return describe_dense(row->type->dtype, row->type->sizes);
  if (const auto* number = leaf.as<Number>()) return c10::str("a ", dtype_name(number->dtype), " number");
  if (const auto* bytes = leaf.as<Bytes>()) return c10::str(bytes->size(), " bytes");
  if (const auto* list = leaf.as<LeafList>()) return c10::str("a list of ", list->leaves->size());
  return c10::str("a value of type ", c10::demangle(leaf.as<Opaque>()->type->name()));
}

void fail_leaf(const char* wanted, const Leaf& found) {
  LOCKSTEP_THROW(c10::TypeError, "[data] the type of a part of the element does not match its C++ type: wanted ",
                 wanted, ", found ", describe(found));
}

}  // namespace detail
}  // namespace lockstep::data
