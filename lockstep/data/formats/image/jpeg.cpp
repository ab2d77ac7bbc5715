#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <jerror.h>
#include <jpeglib.h>
#include <limits>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/image/image_impl.h"
#include "lockstep/data/formats/new_tensor.h"

namespace lockstep::data {
namespace {

using detail::ErrorJump;
using detail::run_with_error_jump;

// A progressive file may repeat its scans over the whole image: a few bytes, a second of work each.
constexpr int kMaxScans = 500;

struct Errors {
  jpeg_error_mgr manager;  // first, as libjpeg hands out its address
  ErrorJump jump;
};

[[noreturn]] void jump(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  char message[JMSG_LENGTH_MAX];
  errors->manager.format_message(info, message);
  std::snprintf(errors->jump.message, sizeof(errors->jump.message), "%s", message);
  std::longjmp(errors->jump.target, 1);
}

// libjpeg warns and goes on with gray pixels where pixels are lost. That is an error here. Warnings without lost pixels
// are not.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_TOO_MUCH_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_NOT_SEQUENTIAL || warning == JWRN_JFIF_MAJOR || warning == JWRN_BOGUS_PROGRESSION;
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) jump(info);
}

void on_output(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  if (info->is_decompressor == 0) return;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  std::snprintf(errors->jump.message, sizeof(errors->jump.message), "more than %d scans", kMaxScans);
  std::longjmp(errors->jump.target, 1);
}

jpeg_error_mgr* prepare(Errors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jump;
  errors.manager.emit_message = on_message;
  errors.manager.output_message = on_output;
  return &errors.manager;
}

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = prepare(errors_);
    run([&] { jpeg_create_decompress(&info_); });
    progress_.progress_monitor = on_progress;
    info_.progress = &progress_;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  at::Tensor decode(const Bytes& file, const ImageOptions& options) {
    run([&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&info_, TRUE);
    });
    const ImageSize size{info_.image_height, info_.image_width, info_.num_components == 1 ? 1 : 3};
    detail::check_pixels(size, options, "decode_jpeg");
    choose_colors(options.channels);
    run([&] { jpeg_start_decompress(&info_); });
    at::Tensor pixels = detail::new_tensor({size.height, size.width, info_.output_components}, at::kByte);
    auto* memory = pixels.data_ptr<uint8_t>();
    const size_t row_bytes = static_cast<size_t>(size.width) * static_cast<size_t>(info_.output_components);
    run([&] {
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW row = memory + info_.output_scanline * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
      jpeg_finish_decompress(&info_);
    });
    return pixels;
  }

  bool inverted_cmyk() const { return info_.saw_Adobe_marker != 0; }

 private:
  template <class Body>
  void run(Body&& body) {
    LOCKSTEP_CHECK_DATA(run_with_error_jump(errors_.jump, body), "[decode_jpeg] the file is damaged: libjpeg says \"",
                        errors_.jump.message, "\"");
  }

  void choose_colors(int64_t channels) {
    const J_COLOR_SPACE space = info_.jpeg_color_space;
    if (space == JCS_CMYK || space == JCS_YCCK) {
      info_.out_color_space = JCS_CMYK;
    } else if (channels == 1 || (channels == 0 && space == JCS_GRAYSCALE)) {
      info_.out_color_space = JCS_GRAYSCALE;
    } else {
      info_.out_color_space = JCS_RGB;
    }
  }

  Errors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

// Printers' colours to a screen's. Programs of Adobe's write them inverted, and so in fact does everybody.
at::Tensor rgb_of_cmyk(const at::Tensor& cmyk, bool inverted) {
  at::Tensor rgb = detail::new_tensor({cmyk.size(0), cmyk.size(1), 3}, cmyk.scalar_type());
  const auto* from = cmyk.data_ptr<uint8_t>();
  auto* to = rgb.data_ptr<uint8_t>();
  for (int64_t i = 0; i < cmyk.size(0) * cmyk.size(1); ++i, from += 4, to += 3) {
    const int black = inverted ? from[3] : 255 - from[3];
    for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>((inverted ? from[c] : 255 - from[c]) * black / 255);
  }
  return rgb;
}

at::Tensor with_opaque_alpha(const at::Tensor& rgb) {
  at::Tensor result = detail::new_tensor({rgb.size(0), rgb.size(1), 4}, rgb.scalar_type());
  const auto* from = rgb.data_ptr<uint8_t>();
  auto* to = result.data_ptr<uint8_t>();
  for (int64_t i = 0; i < rgb.size(0) * rgb.size(1); ++i, from += 3, to += 4) {
    std::copy_n(from, 3, to);
    to[3] = 255;
  }
  return result;
}

class JpegEncoder {
 public:
  JpegEncoder() {
    info_.err = prepare(errors_);
    run([&] { jpeg_create_compress(&info_); });
  }
  ~JpegEncoder() {
    jpeg_destroy_compress(&info_);
    std::free(memory_);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  Bytes encode(const at::Tensor& checked, int64_t quality) {
    auto* pixels = checked.data_ptr<uint8_t>();
    info_.image_height = static_cast<JDIMENSION>(checked.size(0));
    info_.image_width = static_cast<JDIMENSION>(checked.size(1));
    info_.input_components = static_cast<int>(checked.size(2));
    info_.in_color_space = checked.size(2) == 1 ? JCS_GRAYSCALE : JCS_RGB;
    const size_t row_bytes = static_cast<size_t>(checked.size(1) * checked.size(2));
    run([&] {
      jpeg_mem_dest(&info_, &memory_, &size_);
      jpeg_set_defaults(&info_);
      jpeg_set_quality(&info_, static_cast<int>(quality), TRUE);
      jpeg_start_compress(&info_, TRUE);
      while (info_.next_scanline < info_.image_height) {
        JSAMPROW row = pixels + info_.next_scanline * row_bytes;
        jpeg_write_scanlines(&info_, &row, 1);
      }
      jpeg_finish_compress(&info_);
    });
    return std::string_view(reinterpret_cast<const char*>(memory_), size_);
  }

 private:
  template <class Body>
  void run(Body&& body) {
    LOCKSTEP_CHECK_VALUE(run_with_error_jump(errors_.jump, body),
                         "[encode_jpeg] the image could not be written: libjpeg says \"", errors_.jump.message, "\"");
  }

  Errors errors_{};
  unsigned char* memory_ = nullptr;
  unsigned long size_ = 0;  // NOLINT: libjpeg's type
  jpeg_compress_struct info_{};
};

}  // namespace

at::Tensor decode_jpeg(const Bytes& file, const ImageOptions& options) {
  detail::validate(options, "decode_jpeg");
  return detail::naming_the_file(options, [&] {
    LOCKSTEP_CHECK_DATA(detail::is_jpeg(file), "[decode_jpeg] must be a JPEG file: bytes=", file.size(),
                        ", first bytes=", file.slice(0, 8));
    JpegDecoder decoder;
    at::Tensor pixels = decoder.decode(file, options);
    if (pixels.size(2) == 4) {
      pixels = rgb_of_cmyk(pixels, decoder.inverted_cmyk());
      if (options.channels == 1) pixels = detail::gray_of_rgb(pixels);
    }
    if (options.channels == 4) pixels = with_opaque_alpha(pixels);
    return options.dtype == at::kByte ? pixels : pixels.to(at::kInt).mul_(257);
  });
}

Bytes encode_jpeg(const at::Tensor& image, const JpegOptions& options) {
  const at::Tensor checked = detail::checked_image(image, 3, "encode_jpeg");
  LOCKSTEP_CHECK_VALUE(checked.scalar_type() == at::kByte,
                       "[encode_jpeg] an image must be of uint8: dtype=", checked.scalar_type());
  LOCKSTEP_CHECK_VALUE(checked.size(2) != 2, "[encode_jpeg] an image must have 1 or 3 channels: channels=2");
  LOCKSTEP_CHECK_VALUE(checked.size(0) <= JPEG_MAX_DIMENSION && checked.size(1) <= JPEG_MAX_DIMENSION,
                       "[encode_jpeg] a JPEG file has at most ", JPEG_MAX_DIMENSION,
                       " rows and columns: shape=", checked.sizes());
  LOCKSTEP_CHECK_VALUE(options.quality >= 1 && options.quality <= 100,
                       "[encode_jpeg] quality must be from 1 to 100: quality=", options.quality);
  return JpegEncoder().encode(checked, options.quality);
}

}  // namespace lockstep::data
