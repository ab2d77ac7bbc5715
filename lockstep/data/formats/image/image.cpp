#include "lockstep/data/formats/image/image.h"

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image_impl.h"
#include "lockstep/data/formats/new_tensor.h"

namespace lockstep::data {
namespace detail {
namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);

int64_t big_endian(std::string_view bytes, size_t offset, size_t count) {
  int64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

// Start of frame: any of the ways to compress, but not the tables and extensions whose codes lie between them.
bool starts_frame(int marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

bool has_no_length(int marker) { return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8); }

template <class T>
void convert_to_gray(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i, from += 3) {
    to[i] = static_cast<T>((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
  }
}

}  // namespace

at::Tensor gray_of_rgb(const at::Tensor& rgb) {
  at::Tensor gray = new_tensor({rgb.size(0), rgb.size(1), 1}, rgb.scalar_type());
  if (rgb.scalar_type() == at::kByte) {
    convert_to_gray(rgb.data_ptr<uint8_t>(), gray.data_ptr<uint8_t>(), gray.numel());
  } else {
    convert_to_gray(rgb.data_ptr<int32_t>(), gray.data_ptr<int32_t>(), gray.numel());
  }
  return gray;
}

bool is_jpeg(std::string_view file) { return file.starts_with("\xff\xd8\xff"); }
bool is_png(std::string_view file) { return file.starts_with(kPngSignature); }

ImageSize jpeg_size(std::string_view file, std::string_view operation) {
  size_t offset = 2;
  while (offset + 4 <= file.size()) {
    if (static_cast<unsigned char>(file[offset]) != 0xff) break;
    const int marker = static_cast<unsigned char>(file[offset + 1]);
    if (marker == 0xff) {  // filling
      ++offset;
      continue;
    }
    offset += 2;
    if (has_no_length(marker)) continue;
    const int64_t length = big_endian(file, offset, 2);
    if (starts_frame(marker) && offset + 8 <= file.size()) {
      const int64_t components = big_endian(file, offset + 7, 1);
      return {big_endian(file, offset + 3, 2), big_endian(file, offset + 5, 2), components == 1 ? 1 : 3};
    }
    if (marker == 0xda || marker == 0xd9 || length < 2) break;
    offset += static_cast<size_t>(length);
  }
  LOCKSTEP_THROW(DataError, "[", operation, "] a JPEG file must have a frame header: bytes=", file.size(),
                 ", offset=", offset);
}

ImageSize png_size(std::string_view file, std::string_view operation) {
  LOCKSTEP_CHECK_DATA(file.size() >= 33 && file.substr(12, 4) == "IHDR", "[", operation,
                      "] a PNG file must start with its header: bytes=", file.size());
  const int64_t color = big_endian(file, 25, 1);
  ImageSize size{big_endian(file, 20, 4), big_endian(file, 16, 4), 3};
  if (color == 0) size.channels = 1;
  if (color == 4) size.channels = 2;
  if (color == 6) size.channels = 4;
  if (color != 3) return size;
  // A palette with transparency says so before the image starts.
  for (uint64_t offset = 33; offset + 8 <= file.size();) {
    const std::string_view type = file.substr(offset + 4, 4);
    if (type == "tRNS") size.channels = 4;
    if (type == "tRNS" || type == "IDAT") break;
    offset += 12 + static_cast<uint64_t>(big_endian(file, offset, 4));
  }
  return size;
}

void validate(const ImageOptions& options, std::string_view operation) {
  const int64_t channels = options.channels;
  LOCKSTEP_CHECK_VALUE(channels == 0 || channels == 1 || channels == 3 || channels == 4, "[", operation,
                       "] channels must be 0 (as in the file), 1, 3 or 4: channels=", channels);
  LOCKSTEP_CHECK_VALUE(options.dtype == at::kByte || options.dtype == at::kInt, "[", operation,
                       "] an image is of uint8 or int32: dtype=", options.dtype);
  LOCKSTEP_CHECK_VALUE(options.max_pixels > 0 && options.max_pixels <= int64_t{1} << 40, "[", operation,
                       "] max_pixels must be from 1 to 2^40: max_pixels=", options.max_pixels);
}

void check_pixels(const ImageSize& size, const ImageOptions& options, std::string_view operation) {
  LOCKSTEP_CHECK_DATA(size.height > 0 && size.width > 0, "[", operation,
                      "] an image must have pixels: height=", size.height, ", width=", size.width);
  LOCKSTEP_CHECK_DATA(size.height <= options.max_pixels / size.width, "[", operation,
                      "] an image must have at most max_pixels: height=", size.height, ", width=", size.width,
                      ", max_pixels=", options.max_pixels, "; allow more in ImageOptions if the file can be trusted");
}

void rethrow_with_name(const ImageOptions& options) {
  if (options.name.empty()) throw;
  try {
    throw;
  } catch (const DataError& error) {
    LOCKSTEP_THROW(DataError, error.what_without_backtrace(), ": file=\"", options.name, "\"");
  }
}

at::Tensor checked_image(const at::Tensor& image, int64_t max_channels, std::string_view operation) {
  LOCKSTEP_CHECK_VALUE(
      image.defined() && image.dim() == 3 && image.size(0) > 0 && image.size(1) > 0, "[", operation,
      "] an image must be [height, width, channels]: shape=", image.defined() ? image.sizes() : at::IntArrayRef());
  LOCKSTEP_CHECK_VALUE(image.size(2) >= 1 && image.size(2) <= max_channels, "[", operation,
                       "] an image must have 1 to ", max_channels, " channels: channels=", image.size(2));
  return image.detach().to(at::kCPU).contiguous();
}

}  // namespace detail

namespace {

[[noreturn]] void fail_unknown_format(const Bytes& file, std::string_view operation) {
  LOCKSTEP_THROW(DataError, "[", operation, "] an image must be a JPEG or PNG file: bytes=", file.size(),
                 ", first bytes=", file.slice(0, 8));
}

}  // namespace

at::Tensor decode_image(const Bytes& file, const ImageOptions& options) {
  if (detail::is_jpeg(file)) return decode_jpeg(file, options);
  if (detail::is_png(file)) return decode_png(file, options);
  return detail::naming_the_file(options, [&]() -> at::Tensor { fail_unknown_format(file, "decode_image"); });
}

ImageSize image_size(const Bytes& file) {
  if (detail::is_jpeg(file)) return detail::jpeg_size(file, "image_size");
  if (detail::is_png(file)) return detail::png_size(file, "image_size");
  fail_unknown_format(file, "image_size");
}

}  // namespace lockstep::data
