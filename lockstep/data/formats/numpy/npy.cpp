#include "lockstep/data/formats/numpy/npy.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/from_blob.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/new_tensor.h"
#include "lockstep/data/formats/numpy/npy_impl.h"
#include "lockstep/data/formats/stream/files.h"

namespace lockstep::data {
namespace detail {
namespace {

// Reverses each word of `size` bytes while copying.
void copy_swapped(std::string_view from, size_t word_size, char* to) {
  for (size_t start = 0; start < from.size(); start += word_size) {
    std::reverse_copy(from.data() + start, from.data() + start + word_size, to + start);
  }
}

// Returns the data where an element may lie, in this machine's byte order: in place, or a copy.
Bytes in_native_order(const Bytes& data, const NpyElement& element) {
  const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % element.size == 0;
  if (aligned && (!element.swapped || element.size == 1)) return data;
  char* memory = nullptr;
  auto copy = Buffer::allocate(data.size(), &memory);
  if (element.swapped) {
    copy_swapped(data, element.word_size(), memory);
  } else {
    std::memcpy(memory, data.data(), data.size());
  }
  return {std::move(copy), {memory, data.size()}};
}

// Returns the bytes in writable memory: pages of their own, or a copy.
Bytes own_copy(const Bytes& data) {
  auto pages = data.buffer()->private_pages(data);
  if (!pages) return Bytes(data.view());
  const std::string_view view(pages->data(), pages->size());
  return {std::move(pages), view};
}

template <class From, class To>
at::Tensor widened(const Bytes& data, int64_t count) {
  at::Tensor result = new_tensor({count}, c10::CppTypeToScalarType<To>::value);
  const auto* from = reinterpret_cast<const From*>(data.data());
  std::copy_n(from, count, result.data_ptr<To>());
  return result;
}

void check_fits_int64(const Bytes& data, int64_t count, const Origin& origin) {
  const auto* values = reinterpret_cast<const int64_t*>(data.data());
  const auto* wrong = std::find_if(values, values + count, [](int64_t value) { return value < 0; });
  LOCKSTEP_CHECK_DATA(wrong == values + count, "[", origin.operation,
                      "] values of uint64 must be below 2^63: value=", static_cast<uint64_t>(*wrong),
                      ", position=", wrong - values, ", ", origin.where);
}

// Returns the elements in a row. The tensor owns the buffer of `data`.
at::Tensor flat_tensor(const Bytes& data, const NpyHeader& header, const Origin& origin, NpyMemory memory) {
  const NpyElement& element = header.element;
  if (header.count == 0) return new_tensor({0}, element.dtype);
  const Bytes native = in_native_order(data, element);
  if (element.kind == 'u' && element.size == 2) return widened<uint16_t, int32_t>(native, header.count);
  if (element.kind == 'u' && element.size == 4) return widened<uint32_t, int64_t>(native, header.count);
  if (element.kind == 'u' && element.size == 8) check_fits_int64(native, header.count, origin);
  const bool is_shared = native.buffer() == data.buffer() && memory == NpyMemory::Own;
  const Bytes own = is_shared ? own_copy(native) : native;
  return at::from_blob(
      const_cast<char*>(own.data()), {header.count}, [owner = own.buffer()](void*) {},
      at::TensorOptions().dtype(element.dtype));
}

std::vector<int64_t> strides_of(const NpyHeader& header) {
  std::vector<int64_t> strides(header.shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < strides.size(); ++i) {
    const size_t dimension = header.fortran_order ? i : strides.size() - 1 - i;
    strides[dimension] = stride;
    stride *= std::max<int64_t>(header.shape[dimension], 1);
  }
  return strides;
}

}  // namespace

at::Tensor read_npy(const Bytes& bytes, const Origin& origin, NpyMemory memory) {
  const NpyHeader header = parse_npy_header(bytes, origin);
  const size_t found = bytes.size() - header.data_offset;
  LOCKSTEP_CHECK_DATA(found >= header.data_size, "[", origin.operation, "] the data is truncated: ", origin.where,
                      ", needed bytes=", header.data_size, ", found bytes=", found);
  const Bytes data = bytes.slice(header.data_offset, header.data_size);
  return flat_tensor(data, header, origin, memory).as_strided(header.shape, strides_of(header));
}

at::Tensor writable_npy(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

std::string_view memory_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace detail

namespace {

detail::Origin in_file(std::string_view operation, const std::string& path) {
  return {operation, c10::str("file=\"", path, "\"")};
}

}  // namespace

at::Tensor load_npy(const std::string& path) {
  constexpr std::string_view kOperation = "load_npy";
  const auto buffer = detail::map_private(path, kOperation);
  return detail::read_npy({buffer, {buffer->data(), buffer->size()}}, in_file(kOperation, path),
                          detail::NpyMemory::Shared);
}

ArrayInfo npy_info(const std::string& path) {
  constexpr std::string_view kOperation = "npy_info";
  const auto buffer = detail::map_private(path, kOperation);
  const auto header = detail::parse_npy_header({buffer->data(), buffer->size()}, in_file(kOperation, path));
  return {"", header.element.dtype, header.shape};
}

at::Tensor parse_npy(const Bytes& bytes) {
  return detail::read_npy(bytes, {"parse_npy", c10::str("bytes=", bytes.size())}, detail::NpyMemory::Own);
}

void save_npy(const std::string& path, const at::Tensor& tensor) {
  const std::string header = detail::npy_header_of(tensor, "save_npy");
  const at::Tensor written = detail::writable_npy(tensor);
  detail::AtomicFile file(path, "save_npy");
  file.write(header);
  file.write(detail::memory_of(written));
  file.complete();
}

}  // namespace lockstep::data
