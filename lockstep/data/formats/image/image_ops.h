#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Elementary operations on images, for functions of `map`. Values are those of torchvision.
///
/// ```
/// auto train = data::image_folder("train").dataset.map(
///     [](torch::Tensor image, int64_t label) {
///       image = data::random_crop(data::resize_shorter_side(image, 256), 224, 224);
///       data::random_horizontal_flip_(image);
///       data::color_jitter_(image, {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4});
///       return std::tuple{data::normalize(image, {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}}),
///       label};
///     },
///     {.num_threads = 8});
/// ```
///
/// An image is a tensor [height, width, channels] of uint8 (0 to 255) or float (0 to 1) on the CPU, with any strides.
/// Functions whose names end in `_` change it in place and return it; a crop is a view. Random functions draw from
/// LibTorch's default generator, in the order in which torchvision draws: inside `map` they depend on the seed, the
/// epoch and the element alone. All throw c10::ValueError for other tensors and for arguments out of range.
namespace lockstep::data {

enum class Interpolation {
  /// Linear between the centres of pixels (half-pixel centres, `align_corners=False`).
  Bilinear,
  /// The pixel whose centre is nearest (torchvision's NEAREST_EXACT).
  Nearest,
};

struct LOCKSTEP_API ResizeOptions {
  Interpolation interpolation = Interpolation::Bilinear;
  /// Whether Bilinear averages over all pixels that a smaller image's pixel covers: the triangle is as wide as the
  /// larger of both pixels. Without it a smaller image skips pixels.
  bool antialias = true;
};

/// Returns the image in another size; the image itself where it has that size. Sums are float; uint8 is rounded, half
/// to even.
LOCKSTEP_API at::Tensor resize(const at::Tensor& image, int64_t height, int64_t width,
                               const ResizeOptions& options = {});

/// Resizes so that the shorter side is `size`; the longer one is `size` times their ratio, rounded down.
LOCKSTEP_API at::Tensor resize_shorter_side(const at::Tensor& image, int64_t size, const ResizeOptions& options = {});

/// Returns the part of the image from row `top` and column `left` on: a view. It must lie inside the image.
LOCKSTEP_API at::Tensor crop(const at::Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);

/// Returns the centre of the image: a view. Margins of odd size are rounded half to even, as torchvision does.
LOCKSTEP_API at::Tensor center_crop(const at::Tensor& image, int64_t height, int64_t width);

/// Returns a part of this size at a random place, all places equally likely: a view.
LOCKSTEP_API at::Tensor random_crop(const at::Tensor& image, int64_t height, int64_t width);

/// Exchanges left and right, or top and bottom.
LOCKSTEP_API at::Tensor horizontal_flip_(const at::Tensor& image);
LOCKSTEP_API at::Tensor vertical_flip_(const at::Tensor& image);
/// Does so with this probability.
LOCKSTEP_API at::Tensor random_horizontal_flip_(const at::Tensor& image, double probability = 0.5);
LOCKSTEP_API at::Tensor random_vertical_flip_(const at::Tensor& image, double probability = 0.5);

struct LOCKSTEP_API NormalizeOptions {
  /// One number for each channel, or one for all.
  std::vector<double> mean{0.0};
  std::vector<double> std{1.0};
  /// Whether the result is [channels, height, width], as LibTorch's convolutions take it.
  bool channels_first = true;
};

/// Returns (value - mean) / std as float, where bytes are divided by 255 before: torchvision's ToTensor and Normalize.
LOCKSTEP_API at::Tensor normalize(const at::Tensor& image, const NormalizeOptions& options = {});

/// Changes colours as torchvision does; images have 1 or 3 channels (gray, RGB). Results are clamped to the range of
/// values, and uint8 is truncated. Gray is 0.2989 R + 0.587 G + 0.114 B.
///
///   - brightness: factor * image
///   - contrast: factor * image + (1 - factor) * (the mean of the gray image)
///   - saturation: factor * image + (1 - factor) * (the gray image); gray images do not change
///   - hue: `shift`, from -0.5 to 0.5, is added to the hue, a number from 0 to 1; gray images do not change
LOCKSTEP_API at::Tensor adjust_brightness_(const at::Tensor& image, double factor);
LOCKSTEP_API at::Tensor adjust_contrast_(const at::Tensor& image, double factor);
LOCKSTEP_API at::Tensor adjust_saturation_(const at::Tensor& image, double factor);
LOCKSTEP_API at::Tensor adjust_hue_(const at::Tensor& image, double shift);

struct LOCKSTEP_API ColorJitter {
  /// Factors are from max(0, 1 - x) to 1 + x.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  /// Shifts are from -x to x; at most 0.5.
  double hue = 0;
};

/// Makes these changes by random factors, in a random order. What is 0 is left out.
LOCKSTEP_API at::Tensor color_jitter_(const at::Tensor& image, const ColorJitter& jitter);

}  // namespace lockstep::data
