#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/files_impl.h"
#include "lockstep/data/formats/npy.h"
#include "lockstep/data/formats/npy_impl.h"

namespace lockstep::data {
namespace detail {
namespace {

constexpr size_t kDataAlignment = 64;

std::string descr_of(at::ScalarType dtype, std::string_view operation) {
  const char order = std::endian::native == std::endian::little ? '<' : '>';
  switch (dtype) {
    case at::kBool:
      return "|b1";
    case at::kByte:
      return "|u1";
    case at::kChar:
      return "|i1";
    case at::kShort:
      return c10::str(order, "i2");
    case at::kInt:
      return c10::str(order, "i4");
    case at::kLong:
      return c10::str(order, "i8");
    case at::kHalf:
      return c10::str(order, "f2");
    case at::kFloat:
      return c10::str(order, "f4");
    case at::kDouble:
      return c10::str(order, "f8");
    case at::kComplexFloat:
      return c10::str(order, "c8");
    case at::kComplexDouble:
      return c10::str(order, "c16");
    default:
      break;
  }
  LOCKSTEP_CHECK_VALUE(false, "[", operation, "] NumPy has no such type: dtype=", dtype,
                       "; convert the tensor first, for example to(at::kFloat)");
  return "";
}

}  // namespace

std::string npy_header_of(const at::Tensor& tensor, std::string_view operation) {
  LOCKSTEP_CHECK_VALUE(tensor.defined(), "[", operation, "] the tensor must be defined");
  std::string shape;
  for (const int64_t size : tensor.sizes()) shape += c10::str(size, ", ");
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  if (tensor.dim() == 1) shape.resize(shape.size() - 1);
  std::string literal = c10::str("{'descr': '", descr_of(tensor.scalar_type(), operation),
                                 "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kPrefix = 10;
  const size_t used = kPrefix + literal.size() + 1;
  literal.append((kDataAlignment - used % kDataAlignment) % kDataAlignment, ' ');
  literal += '\n';
  LOCKSTEP_CHECK_VALUE(literal.size() <= 0xffff, "[", operation,
                       "] the tensor has too many dimensions: dimensions=", tensor.dim());
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(literal.size() & 0xff);
  header += static_cast<char>(literal.size() >> 8);
  return header + literal;
}

at::Tensor writable_npy(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

std::string_view memory_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace detail

void save_npy(const std::string& path, const at::Tensor& tensor) {
  const std::string header = detail::npy_header_of(tensor, "save_npy");
  const at::Tensor written = detail::writable_npy(tensor);
  detail::WholeFile file(path, "save_npy");
  file.write(header);
  file.write(detail::memory_of(written));
  file.complete();
}

}  // namespace lockstep::data
