#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <png.h>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/image/image_impl.h"
#include "lockstep/data/formats/new_tensor.h"

namespace lockstep::data {
namespace {

using detail::ErrorJump;
using detail::run_with_error_jump;

// Texts and colour profiles, which are not read, are thrown away when they are larger.
constexpr png_alloc_size_t kMaxChunk = png_alloc_size_t{8} << 20;
constexpr bool kLittleEndian = std::endian::native == std::endian::little;

void on_error(png_structp png, png_const_charp text) {
  auto* jump = static_cast<ErrorJump*>(png_get_error_ptr(png));
  std::snprintf(jump->message, sizeof(jump->message), "%s", text);
  std::longjmp(jump->target, 1);
}

void on_warning(png_structp, png_const_charp) {}

struct Input {
  const char* data;
  size_t left;
};

void on_read(png_structp png, png_bytep out, size_t size) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (size > input->left) png_error(png, "the file is truncated");
  std::memcpy(out, input->data, size);
  input->data += size;
  input->left -= size;
}

class PngDecoder {
 public:
  explicit PngDecoder(const Bytes& file) : input_{file.data(), file.size()} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &error_jump_, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    LOCKSTEP_CHECK_DATA(info_ != nullptr, "[decode_png] libpng could not be started");
    png_set_read_fn(png_, &input_, on_read);
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  at::Tensor decode(const ImageOptions& options) {
    run([&] {
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      png_set_chunk_malloc_max(png_, kMaxChunk);
      png_read_info(png_, info_);
    });
    const ImageSize size{png_get_image_height(png_, info_), png_get_image_width(png_, info_), 0};
    detail::check_pixels(size, options, "decode_png");
    run([&] {
      choose_pixels(options);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    const int64_t channels = png_get_channels(png_, info_);
    const bool deep = png_get_bit_depth(png_, info_) == 16;
    at::Tensor pixels = detail::new_tensor({size.height, size.width, channels}, deep ? at::kShort : at::kByte);
    read_rows(pixels);
    if (deep) pixels = pixels.to(at::kInt).bitwise_and_(0xffff);
    // Not by libpng, which would weigh the colours by the file's gamma.
    return options.channels == 1 && channels == 3 ? detail::gray_of_rgb(pixels) : pixels;
  }

 private:
  template <class Body>
  void run(Body&& body) {
    LOCKSTEP_CHECK_DATA(run_with_error_jump(error_jump_, body), "[decode_png] the file is damaged: libpng says \"",
                        error_jump_.message, "\"");
  }

  // Asks libpng for 8 or 16 bits of gray or RGB, with or without alpha.
  void choose_pixels(const ImageOptions& options) {
    const int color = png_get_color_type(png_, info_);
    const bool transparent = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    const bool palette = color == PNG_COLOR_TYPE_PALETTE;
    const bool gray = (color & PNG_COLOR_MASK_COLOR) == 0;
    const bool alpha_in_file = (color & PNG_COLOR_MASK_ALPHA) != 0 || (palette && transparent);
    const bool alpha_wanted = options.channels == 4 || (options.channels == 0 && alpha_in_file);
    const bool deep = options.dtype == at::kInt;
    if (palette) png_set_palette_to_rgb(png_);
    if (gray && png_get_bit_depth(png_, info_) < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (alpha_wanted && transparent) png_set_tRNS_to_alpha(png_);
    if (!alpha_wanted) png_set_strip_alpha(png_);
    if (deep) {
      png_set_expand_16(png_);
      if (kLittleEndian) png_set_swap(png_);
    } else {
      png_set_strip_16(png_);
    }
    if (gray && options.channels >= 3) png_set_gray_to_rgb(png_);
    if (alpha_wanted && !alpha_in_file && !transparent) png_set_add_alpha(png_, deep ? 0xffff : 0xff, PNG_FILLER_AFTER);
  }

  void read_rows(const at::Tensor& pixels) {
    auto* memory = static_cast<png_bytep>(pixels.data_ptr());
    const size_t row_bytes = static_cast<size_t>(pixels.stride(0)) * pixels.element_size();
    LOCKSTEP_ASSERT(png_get_rowbytes(png_, info_) == row_bytes, "bytes=", png_get_rowbytes(png_, info_));
    std::vector<png_bytep> rows(static_cast<size_t>(pixels.size(0)));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = memory + i * row_bytes;
    run([&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    });
  }

  ErrorJump error_jump_{};
  Input input_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// libpng's C functions call this: nothing may be thrown through them.
void on_write(png_structp png, png_bytep bytes, size_t size) {
  auto* out = static_cast<std::string*>(png_get_io_ptr(png));
  bool stored = true;
  try {
    out->append(reinterpret_cast<const char*>(bytes), size);
  } catch (const std::bad_alloc&) {
    stored = false;
  }
  if (!stored) png_error(png, "no memory left");
}

void on_flush(png_structp) {}

class PngEncoder {
 public:
  PngEncoder() {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &error_jump_, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    LOCKSTEP_CHECK_VALUE(info_ != nullptr, "[encode_png] libpng could not be started");
    png_set_write_fn(png_, &out_, on_write, on_flush);
  }
  ~PngEncoder() { png_destroy_write_struct(&png_, &info_); }
  PngEncoder(const PngEncoder&) = delete;
  PngEncoder& operator=(const PngEncoder&) = delete;

  Bytes encode(const at::Tensor& pixels) {
    constexpr int kColors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                               PNG_COLOR_TYPE_RGB_ALPHA};
    const int color = kColors[pixels.size(2) - 1];
    const bool deep = pixels.element_size() == 2;
    const auto* memory = static_cast<png_const_bytep>(pixels.data_ptr());
    const int64_t row_bytes = pixels.stride(0) * static_cast<int64_t>(pixels.element_size());
    const int64_t height = pixels.size(0);
    const bool finished = run_with_error_jump(error_jump_, [&] {
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      png_set_IHDR(png_, info_, static_cast<png_uint_32>(pixels.size(1)), static_cast<png_uint_32>(height),
                   deep ? 16 : 8, color, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      png_write_info(png_, info_);
      if (deep && kLittleEndian) png_set_swap(png_);
      for (int64_t i = 0; i < height; ++i) png_write_row(png_, memory + i * row_bytes);
      png_write_end(png_, nullptr);
    });
    LOCKSTEP_CHECK_VALUE(finished, "[encode_png] the image could not be written: libpng says \"", error_jump_.message,
                         "\"");
    return std::string_view(out_);
  }

 private:
  ErrorJump error_jump_{};
  std::string out_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// Two bytes of each value, as an image of 16 bits has them.
at::Tensor narrowed(const at::Tensor& checked) {
  at::Tensor result = detail::new_tensor(checked.sizes(), at::kShort);
  const auto* from = checked.data_ptr<int32_t>();
  auto* to = reinterpret_cast<uint16_t*>(result.data_ptr<int16_t>());
  for (int64_t i = 0; i < checked.numel(); ++i) {
    LOCKSTEP_CHECK_VALUE(from[i] >= 0 && from[i] <= 0xffff,
                         "[encode_png] values of int32 must be from 0 to 65535: value=", from[i], ", position=", i);
    to[i] = static_cast<uint16_t>(from[i]);
  }
  return result;
}

}  // namespace

at::Tensor decode_png(const Bytes& file, const ImageOptions& options) {
  detail::validate(options, "decode_png");
  return detail::naming_the_file(options, [&] {
    LOCKSTEP_CHECK_DATA(detail::is_png(file), "[decode_png] must be a PNG file: bytes=", file.size(),
                        ", first bytes=", file.slice(0, 8));
    return PngDecoder(file).decode(options);
  });
}

Bytes encode_png(const at::Tensor& image) {
  const at::Tensor checked = detail::checked_image(image, 4, "encode_png");
  const at::ScalarType dtype = checked.scalar_type();
  LOCKSTEP_CHECK_VALUE(dtype == at::kByte || dtype == at::kInt,
                       "[encode_png] an image must be of uint8 or int32: dtype=", dtype);
  return PngEncoder().encode(dtype == at::kInt ? narrowed(checked) : checked);
}

}  // namespace lockstep::data
