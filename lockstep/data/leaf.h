#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"

/// Inside: the leaves of dataset elements. Between the typed ends of a pipeline an element is a short list of these.
///
/// Making a LibTorch tensor costs about a microsecond, which is more than most elements need in all. So a leaf is a
/// tensor only where a user's function made one: numbers stay numbers, and a row of a tensor, of a record or of a
/// mapped file stays a pointer to its bytes until `batch` copies them to their place, or a function asks for the
/// tensor.
namespace lockstep::data {

struct Leaf;

/// What the rows of one source have in common.
struct LOCKSTEP_API RowType : c10::intrusive_ptr_target {
  RowType(at::ScalarType dtype, at::IntArrayRef sizes);

  at::ScalarType dtype;
  c10::SmallVector<int64_t, 4> sizes;
  size_t num_bytes;
};

/// A dense tensor that was not made yet: its values lie in row-major order at `data` (not necessarily aligned), inside
/// `buffer`.
struct Row {
  c10::intrusive_ptr<RowType> type;
  c10::intrusive_ptr<Buffer> buffer;
  const char* data = nullptr;
};

/// One number, kept as the bytes that it has in a tensor of its dtype.
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

/// Anything else: a value of a user's own type. Passed on as it is; `batch` makes a `List` of them.
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

/// Keeps the memory of a tensor (dense, row-major, on the CPU) for rows of it.
LOCKSTEP_API c10::intrusive_ptr<Buffer> buffer_of(const at::Tensor& tensor);

/// Returns row `index` along the first dimension of a tensor, without making a tensor where `rows` has its type.
class LOCKSTEP_API RowsOf {
 public:
  /// `tensor` has at least one dimension. One on another device, or not dense, is sliced by LibTorch.
  explicit RowsOf(at::Tensor tensor);
  int64_t size() const { return size_; }
  Leaf operator[](int64_t index) const;

 private:
  at::Tensor tensor_;
  int64_t size_;
  c10::intrusive_ptr<RowType> type_;
  c10::intrusive_ptr<Buffer> buffer_;
};

/// Returns the leaf as a tensor: rows and numbers become one, anything else throws TypeError.
LOCKSTEP_API at::Tensor to_tensor(const Leaf& leaf);
/// Returns the leaf as bytes, or throws TypeError.
LOCKSTEP_API const Bytes& to_bytes(const Leaf& leaf);
/// Returns the leaf as the number that its one value is.
LOCKSTEP_API Number to_number(const Leaf& leaf);
/// Converts between number types as C++ does.
LOCKSTEP_API double number_as_double(const Number& number);
LOCKSTEP_API int64_t number_as_int64(const Number& number);

/// Says what the leaf is, for messages: "a float32 tensor of shape [2, 3]", "bytes", "std::vector<Box>".
LOCKSTEP_API std::string describe(const Leaf& leaf);
[[noreturn]] LOCKSTEP_API void fail_leaf(const char* wanted, const Leaf& found);

}  // namespace detail
}  // namespace lockstep::data
