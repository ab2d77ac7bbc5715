#pragma once

#include <csetjmp>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"

/// What the codecs of image formats share.
namespace lockstep::data {
struct ImageOptions;
struct ImageSize;
}  // namespace lockstep::data

namespace lockstep::data::detail {

/// The target of the jump by which libjpeg and libpng report an error, and its message. Their error handlers must not
/// return: they jump from the C functions of the library back into `run_with_error_jump`.
struct ErrorJump {
  std::jmp_buf target;
  char message[256] = "";
};

/// Calls `body`, which calls the library, and returns whether it finished without an error. The jump destroys no C++
/// object, so neither `body` nor anything that it calls may own one.
template <class Body>
[[gnu::noinline]] bool run_with_error_jump(ErrorJump& error, Body&& body) {
  if (setjmp(error.target) != 0) return false;
  body();
  return true;
}

bool is_jpeg(std::string_view file);
bool is_png(std::string_view file);

/// Reads the size out of the header. Throws DataError that names `operation`.
ImageSize jpeg_size(std::string_view file, std::string_view operation);
ImageSize png_size(std::string_view file, std::string_view operation);

/// Throws c10::ValueError where an option is out of range.
void validate(const ImageOptions& options, std::string_view operation);
/// Throws DataError for images without pixels or with too many.
void check_pixels(const ImageSize& size, const ImageOptions& options, std::string_view operation);

/// Throws the DataError that is being handled, with the name of the file where there is one.
[[noreturn]] void rethrow_with_name(const ImageOptions& options);

/// Calls `body`, whose errors are to name the file.
template <class Body>
at::Tensor naming_the_file(const ImageOptions& options, Body&& body) {
  try {
    return body();
  } catch (const DataError&) {
    rethrow_with_name(options);
  }
}

/// Returns the gray image of one with 3 channels, of uint8 or int32.
at::Tensor gray_of_rgb(const at::Tensor& rgb);

/// Returns the image on the CPU in a row, checked to be [height, width, 1 to `max_channels`].
at::Tensor checked_image(const at::Tensor& image, int64_t max_channels, std::string_view operation);

}  // namespace lockstep::data::detail
