#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/npy_impl.h"
#include "lockstep/data/formats/numpy/python_literal.h"

namespace lockstep::data::detail {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxRank = 64;
// The header of an array of numbers with 64 dimensions is far below this; only records have larger ones.
constexpr size_t kMaxHeader = 65536;

struct KnownElement {
  char kind;
  size_t size;
  at::ScalarType dtype;
};

constexpr std::array kKnownElements{
    KnownElement{'b', 1, at::kBool},         KnownElement{'i', 1, at::kChar},
    KnownElement{'i', 2, at::kShort},        KnownElement{'i', 4, at::kInt},
    KnownElement{'i', 8, at::kLong},         KnownElement{'u', 1, at::kByte},
    KnownElement{'u', 2, at::kInt},          KnownElement{'u', 4, at::kLong},
    KnownElement{'u', 8, at::kLong},         KnownElement{'f', 2, at::kHalf},
    KnownElement{'f', 4, at::kFloat},        KnownElement{'f', 8, at::kDouble},
    KnownElement{'c', 8, at::kComplexFloat}, KnownElement{'c', 16, at::kComplexDouble},
};

// Reads a type such as "<f4": byte order, kind, bytes.
NpyElement parse_element(const std::string& descr, const Origin& origin) {
  NpyElement element;
  size_t start = 0;
  if (!descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string_view::npos) {
    constexpr bool kLittle = std::endian::native == std::endian::little;
    element.swapped = descr[0] == (kLittle ? '>' : '<');
    start = 1;
  }
  for (const KnownElement& known : kKnownElements) {
    if (descr.substr(start) != c10::str(known.kind, known.size)) continue;
    element.kind = known.kind;
    element.size = known.size;
    element.dtype = known.dtype;
    return element;
  }
  LOCKSTEP_THROW(DataError, "[", origin.operation,
                 "] the array must be of bool, int8 to int64, uint8 to uint64, float16 ",
                 "to float64, complex64 or complex128: descr='", descr.substr(0, 40), "', ", origin.where,
                 "; convert it with NumPy's astype");
}

struct Prefix {
  int version;
  std::string_view literal;
};

// Cuts out the literal. Version 1 gives its length in two bytes, later ones in four.
Prefix find_literal(std::string_view bytes, const Origin& origin) {
  LOCKSTEP_CHECK_DATA(bytes.substr(0, kMagic.size()) == kMagic, "[", origin.operation,
                      "] a .npy file must start with \\x93NUMPY: ", origin.where);
  LOCKSTEP_CHECK_DATA(bytes.size() >= 8, "[", origin.operation, "] the header is truncated: ", origin.where,
                      ", needed bytes=10, found bytes=", bytes.size());
  const int version = static_cast<unsigned char>(bytes[6]);
  LOCKSTEP_CHECK_DATA(version >= 1 && version <= 3, "[", origin.operation,
                      "] the version must be 1, 2 or 3: version=", version, ", ", origin.where);
  const size_t start = version == 1 ? 10 : 12;
  LOCKSTEP_CHECK_DATA(bytes.size() >= start, "[", origin.operation, "] the header is truncated: ", origin.where,
                      ", needed bytes=", start, ", found bytes=", bytes.size());
  size_t length = 0;
  for (size_t i = start; i-- > 8;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  LOCKSTEP_CHECK_DATA(length <= kMaxHeader, "[", origin.operation, "] the header of an array of numbers has at most ",
                      kMaxHeader, " bytes: bytes=", length, ", ", origin.where);
  LOCKSTEP_CHECK_DATA(bytes.size() - start >= length, "[", origin.operation,
                      "] the header is truncated: ", origin.where, ", needed bytes=", start + length,
                      ", found bytes=", bytes.size());
  return {version, bytes.substr(start, length)};
}

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } with the keys in any order.
void parse_literal(std::string_view text, NpyHeader& header, const Origin& origin) {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
  PythonLiteral literal(text);
  literal.expect('{');
  while (!literal.accept('}')) {
    const std::string key = literal.text();
    literal.expect(':');
    if (key == "descr") {
      LOCKSTEP_CHECK_DATA(literal.peek() != '[', "[", origin.operation,
                          "] arrays of records are not read: ", origin.where,
                          "; save each field as an array of its own");
      descr = literal.text();
    } else if (key == "fortran_order") {
      fortran_order = literal.truth();
    } else if (key == "shape") {
      shape = literal.numbers();
    } else {
      LOCKSTEP_THROW(DataError, "[", origin.operation, "] the header has descr, fortran_order and shape only: key='",
                     key.substr(0, 40), "', ", origin.where);
    }
    if (!literal.accept(',') && literal.peek() != '}') literal.expect('}');
  }
  LOCKSTEP_CHECK_DATA(literal.at_end(), "[", origin.operation, "] the header goes on after its dict: ", origin.where);
  LOCKSTEP_CHECK_DATA(descr && fortran_order && shape, "[", origin.operation,
                      "] the header must have descr, fortran_order and shape: ", origin.where);
  header.element = parse_element(*descr, origin);
  header.fortran_order = *fortran_order;
  header.shape = std::move(*shape);
}

// Counts elements and bytes. Strides are products too, also those of arrays that a dimension of 0 makes empty.
void measure(NpyHeader& header, const Origin& origin) {
  LOCKSTEP_CHECK_DATA(header.shape.size() <= kMaxRank, "[", origin.operation, "] an array has at most ", kMaxRank,
                      " dimensions: dimensions=", header.shape.size(), ", ", origin.where);
  int64_t extent = 1;
  int64_t bytes = 0;
  bool fits = true;
  header.count = 1;
  for (const int64_t size : header.shape) {
    fits = fits && !__builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent);
    header.count = size == 0 ? 0 : header.count;
  }
  // Widened elements take up to eight bytes.
  fits = fits && !__builtin_mul_overflow(extent, std::max<int64_t>(header.element.size, 8), &bytes);
  LOCKSTEP_CHECK_DATA(fits, "[", origin.operation, "] the size of the array does not fit into 63 bits: ", origin.where);
  header.count *= extent;
  header.data_size = static_cast<size_t>(header.count) * header.element.size;
}

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
  LOCKSTEP_THROW(c10::ValueError, "[", operation, "] NumPy has no such type: dtype=", dtype,
                 "; convert the tensor first, for example to(at::kFloat)");
}

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes, const Origin& origin) {
  const Prefix prefix = find_literal(bytes, origin);
  NpyHeader header;
  header.version = prefix.version;
  header.data_offset = static_cast<size_t>(prefix.literal.data() - bytes.data()) + prefix.literal.size();
  try {
    parse_literal(prefix.literal, header, origin);
  } catch (const PythonLiteral::LiteralError& error) {
    const size_t offset = header.data_offset - prefix.literal.size() + error.position;
    LOCKSTEP_THROW(DataError, "[", origin.operation, "] the header must hold a Python dict, and there ", error.expected,
                   " is missing: ", origin.where, ", offset=", offset);
  }
  measure(header, origin);
  return header;
}

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

}  // namespace lockstep::data::detail
