#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"

/// Internal: the leaves of dataset elements. Inside a pipeline an element is a short list of leaves.
///
/// Making a LibTorch tensor costs about a microsecond, more than all other work on most elements. So a leaf is a tensor
/// only where a user's function made one: numbers stay numbers, and a row of a tensor, of a record or of a mapped file
/// stays a pointer to its bytes until `batch` copies them or a function asks for the tensor.
namespace lockstep::data {

struct Leaf;

/// The dtype and sizes that all rows of one source share.
struct LOCKSTEP_API RowType : c10::intrusive_ptr_target {
  RowType(at::ScalarType dtype, at::IntArrayRef sizes);

  at::ScalarType dtype;
  c10::SmallVector<int64_t, 4> sizes;
  size_t num_bytes;
};

/// The values of a dense tensor in row-major order at `data`, inside `buffer`; not necessarily aligned. The memory is
/// borrowed: other elements may point to it, and nobody writes to it.
struct Row {
  c10::intrusive_ptr<RowType> type;
  c10::intrusive_ptr<Buffer> buffer;
  const char* data = nullptr;
};

/// One number, stored as the bytes that it has in a tensor of its dtype.
struct Number {
  at::ScalarType dtype = at::kLong;
  std::array<char, 8> bytes{};

  template <class T>
  static Number of(at::ScalarType dtype, T value) {
    static_assert(sizeof(T) <= 8);
    Number number{dtype, {}};
    std::memcpy(number.bytes.data(), &value, sizeof(T));
    return number;
  }
};

/// A value of any other type. `batch` makes a `List` of them.
struct Opaque {
  std::shared_ptr<const void> value;
  const std::type_info* type = nullptr;
};

/// A batch of leaves that no tensor can hold.
struct LeafList {
  std::shared_ptr<const std::vector<Leaf>> leaves;
};

struct Leaf : std::variant<at::Tensor, Row, Number, Bytes, LeafList, Opaque> {
  using variant::variant;

  template <class T>
  const T* as() const {
    return std::get_if<T>(static_cast<const variant*>(this));
  }
  template <class T>
  T* as() {
    return std::get_if<T>(static_cast<variant*>(this));
  }
};

namespace detail {

/// Whether a tensor's values lie in row-major order in memory of the CPU, so that a row can point to them.
LOCKSTEP_API bool is_dense_on_cpu(const at::Tensor& tensor);

/// Returns a buffer that shares the memory of a tensor (dense, row-major, on the CPU). `held_bytes` is what the tensor
/// holds that nothing else does.
LOCKSTEP_API c10::intrusive_ptr<Buffer> buffer_of(const at::Tensor& tensor, size_t held_bytes = 0);

/// The rows of a tensor along its first dimension, without making a tensor for each where that is possible.
class LOCKSTEP_API RowsOf {
 public:
  /// `tensor` has at least one dimension. LibTorch slices a tensor that is on another device or not dense. `held_bytes`
  /// is what the tensor holds that nothing else does.
  explicit RowsOf(at::Tensor tensor, size_t held_bytes = 0);
  /// The rows of a row with at least one dimension, in the same buffer.
  explicit RowsOf(const Row& rows);
  int64_t size() const { return size_; }
  Leaf operator[](int64_t index) const;

 private:
  at::Tensor tensor_;
  int64_t size_;
  c10::intrusive_ptr<RowType> type_;
  c10::intrusive_ptr<Buffer> buffer_;
  const char* data_ = nullptr;
};

/// Converts a tensor, row or number to a tensor; anything else throws TypeError. The tensor may share the memory of
/// other elements and be read-only: it must not be written to, and not be given to users' functions, for which
/// `take_tensor` (private_memory.h) makes one.
LOCKSTEP_API at::Tensor to_tensor(const Leaf& leaf);
/// Returns the leaf as bytes, or throws TypeError.
LOCKSTEP_API const Bytes& to_bytes(const Leaf& leaf);
/// Returns the value of a leaf that is one number, or throws TypeError.
LOCKSTEP_API Number to_number(const Leaf& leaf);
/// Converts between number types as C++ does.
LOCKSTEP_API double number_as_double(const Number& number);
LOCKSTEP_API int64_t number_as_int64(const Number& number);

/// Describes the leaf for messages: "a float32 tensor of shape [2, 3]", "12 bytes", "a value of type Box".
LOCKSTEP_API std::string describe(const Leaf& leaf);
[[noreturn]] LOCKSTEP_API void fail_leaf(const char* wanted, const Leaf& found);

/// The dtype that a number of type T has in a tensor.
template <class T>
constexpr at::ScalarType dtype_of_number() {
  static_assert(std::is_arithmetic_v<T>);
  if constexpr (std::is_same_v<T, bool>) {
    return at::kBool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? at::kFloat : at::kDouble;
  } else if constexpr (sizeof(T) == 1) {
    return std::is_signed_v<T> ? at::kChar : at::kByte;
  } else if constexpr (sizeof(T) == 2 && std::is_signed_v<T>) {
    return at::kShort;
  } else if constexpr (sizeof(T) == 2 || (sizeof(T) == 4 && std::is_signed_v<T>)) {
    return at::kInt;
  } else {
    return at::kLong;  // also unsigned ones, which tensors of LibTorch 1.13 do not have
  }
}

template <class T>
Number number_of(T value) {
  constexpr at::ScalarType dtype = dtype_of_number<T>();
  if constexpr (dtype == at::kDouble) {
    return Number::of(dtype, static_cast<double>(value));
  } else if constexpr (dtype == at::kInt) {
    return Number::of(dtype, static_cast<int32_t>(value));
  } else if constexpr (dtype == at::kLong) {
    return Number::of(dtype, static_cast<int64_t>(value));
  } else {
    return Number::of(dtype, value);
  }
}

template <class T>
T number_to(const Number& number) {
  if (number.dtype == at::kLong) {
    int64_t value = 0;
    std::memcpy(&value, number.bytes.data(), sizeof(value));
    return static_cast<T>(value);
  }
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number_as_double(number));
  } else {
    return static_cast<T>(number_as_int64(number));
  }
}

}  // namespace detail
}  // namespace lockstep::data
