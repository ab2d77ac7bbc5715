#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"

/// Images: JPEG and PNG files become tensors and back.
///
/// ```
/// at::Tensor image = data::decode_image(bytes, {.channels = 3});  // uint8 [height, width, 3]
/// data::Bytes file = data::encode_png(image);
/// ```
///
/// Nothing is rotated (Exif) and no colour profile is applied, as in TensorFlow. Palettes become colours, gray of fewer
/// than 8 bits is spread over 0 to 255, CMYK becomes RGB. Interlaced and progressive files are read. Nothing is ever
/// printed. Every function may be called by any number of threads at once. Built without libjpeg or libpng, the
/// functions that would need it throw c10::NotImplementedError that names the package.
namespace lockstep::data {

struct LOCKSTEP_API ImageOptions {
  /// 0 as in the file: 1 gray, 2 gray with alpha, 3 RGB, 4 RGB with alpha. 1, 3 or 4 converts: gray is
  /// 0.299 R + 0.587 G + 0.114 B, alpha is dropped, or opaque where there was none.
  int64_t channels = 0;
  /// at::kByte, where of 16 bits the upper 8 are kept, or at::kInt, whose values are 0 to 65535 in all files (a tensor
  /// of uint16 is unknown to LibTorch 1.13).
  at::ScalarType dtype = at::kByte;
  /// Refuses images with more pixels: a few bytes of a hostile file can ask for any amount of memory.
  int64_t max_pixels = int64_t{1} << 28;
  /// What errors call the file, such as its path; empty: they do not.
  std::string name{};
};

/// What the header of an image says; `channels` is what decoding with 0 gives.
struct LOCKSTEP_API ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  bool operator==(const ImageSize&) const = default;
};

/// Returns the image as [height, width, channels]. JPEG and PNG are told apart by their first bytes.
/// Throws DataError with the decoder's words where the file is damaged or truncated, or is another format;
/// c10::ValueError where an option is out of range.
LOCKSTEP_API at::Tensor decode_image(const Bytes& file, const ImageOptions& options = {});
LOCKSTEP_API at::Tensor decode_jpeg(const Bytes& file, const ImageOptions& options = {});
LOCKSTEP_API at::Tensor decode_png(const Bytes& file, const ImageOptions& options = {});

/// Reads and decodes a file; errors name it.
LOCKSTEP_API at::Tensor read_image(const std::string& path, ImageOptions options = {});

/// Returns the size of a JPEG or PNG image from its first bytes. Needs neither libjpeg nor libpng.
LOCKSTEP_API ImageSize image_size(const Bytes& file);

struct LOCKSTEP_API JpegOptions {
  /// 1 (small) to 100 (good).
  int64_t quality = 95;
};

/// Returns a JPEG file of a uint8 tensor [height, width, channels] with 1 or 3 channels. Throws c10::ValueError for
/// others.
LOCKSTEP_API Bytes encode_jpeg(const at::Tensor& image, const JpegOptions& options = {});

/// Returns a PNG file of a tensor [height, width, channels] with 1 to 4 channels: uint8 makes 8 bits, int32 with values
/// from 0 to 65535 makes 16. Throws c10::ValueError for others.
LOCKSTEP_API Bytes encode_png(const at::Tensor& image);

}  // namespace lockstep::data
