#pragma once

#include <csetjmp>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "lockstep/data/formats/image.h"

/// What the decoders share.
namespace lockstep::data::detail {

/// libjpeg and libpng report errors by a function that must not return. Theirs is a jump: from the library's C
/// functions back into `guarded`, over no C++ object that would have to be destroyed.
struct Escape {
  std::jmp_buf target;
  char message[256] = "";
};

/// Calls `body`, which calls the library, and tells whether it came to its end. Neither `body` nor anything that it
/// calls may own anything: it works on what its caller owns.
template <class Body>
[[gnu::noinline]] bool guarded(Escape& escape, Body&& body) {
  if (setjmp(escape.target) != 0) return false;
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
/// Throws DataError for pictures without pixels or with too many.
void check_pixels(const ImageSize& size, const ImageOptions& options, std::string_view operation);

/// Returns the gray picture of one with 3 channels, of uint8 or int32.
at::Tensor gray_of_rgb(const at::Tensor& rgb);

/// Returns the picture on the CPU in a row, checked to be [height, width, 1 to `max_channels`].
at::Tensor checked_picture(const at::Tensor& image, int64_t max_channels, std::string_view operation);

}  // namespace lockstep::data::detail
