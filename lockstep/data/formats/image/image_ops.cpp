#include "lockstep/data/formats/image/image_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/pixels.h"
#include "lockstep/data/formats/new_tensor.h"

namespace lockstep::data {
namespace detail {

void check_pixel_image(const at::Tensor& image, std::string_view operation) {
  LOCKSTEP_CHECK_VALUE(image.defined(), "[", operation, "] an image must be given: the tensor is undefined");
  LOCKSTEP_CHECK_VALUE(image.dim() == 3 && image.numel() > 0, "[", operation,
                       "] an image must be [height, width, channels] with pixels: shape=", image.sizes());
  LOCKSTEP_CHECK_VALUE(image.device().is_cpu() && image.layout() == at::kStrided, "[", operation,
                       "] an image must be in the memory of the host: device=", image.device());
  LOCKSTEP_CHECK_VALUE(image.scalar_type() == at::kByte || image.scalar_type() == at::kFloat, "[", operation,
                       "] an image is of uint8 or float: dtype=", image.scalar_type());
}

bool has_dense_rows(const at::Tensor& image) {
  return (image.size(2) == 1 || image.stride(2) == 1) && (image.size(1) == 1 || image.stride(1) == image.size(2));
}

void note_write(const at::Tensor& image) {
  for (int64_t dim = 0; dim < image.dim(); ++dim) {
    LOCKSTEP_CHECK_VALUE(image.size(dim) == 1 || image.stride(dim) != 0,
                         "[image] an image that is changed must have memory for each pixel: shape=", image.sizes(),
                         ", strides=", image.strides(), "; call clone() first");
  }
  if (!image.is_inference()) image.unsafeGetTensorImpl()->bump_version();
}

namespace {

template <class T>
void flip_rows(const Pixels<T>& pixels) {
  for (int64_t y = 0; y < pixels.height; ++y) {
    T* left = pixels.row(y);
    T* right = left + (pixels.width - 1) * pixels.channels;
    for (; left < right; left += pixels.channels, right -= pixels.channels) {
      std::swap_ranges(left, left + pixels.channels, right);
    }
  }
}

template <class T>
void flip_columns(const Pixels<T>& pixels) {
  const int64_t row_values = pixels.width * pixels.channels;
  for (int64_t top = 0, bottom = pixels.height - 1; top < bottom; ++top, --bottom) {
    std::swap_ranges(pixels.row(top), pixels.row(top) + row_values, pixels.row(bottom));
  }
}

double value_of_channel(const std::vector<double>& values, int64_t channel) {
  return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
}

void check_normalization(const at::Tensor& image, const NormalizeOptions& options) {
  const auto fits = [&](const std::vector<double>& values) {
    return values.size() == 1 || static_cast<int64_t>(values.size()) == image.size(2);
  };
  LOCKSTEP_CHECK_VALUE(fits(options.mean) && fits(options.std),
                       "[normalize] mean and std have one number, or one for each channel: mean=", options.mean.size(),
                       ", std=", options.std.size(), ", channels=", image.size(2));
  for (const double deviation : options.std) {
    LOCKSTEP_CHECK_VALUE(std::isfinite(deviation) && deviation != 0,
                         "[normalize] std must be finite and not zero: std=", deviation);
  }
}

/// The 256 results of a channel.
std::array<float, 256> normalized_bytes(float mean, float deviation) {
  std::array<float, 256> table{};
  for (int value = 0; value < 256; ++value) {
    table[static_cast<size_t>(value)] = (static_cast<float>(value) / 255.0f - mean) / deviation;
  }
  return table;
}

/// Writes value (y, x) of a channel to `out[(y * width + x) * step]`.
template <class T, class Function>
void map_channel(const Pixels<T>& pixels, int64_t channel, float* out, int64_t step, const Function& function) {
  for (int64_t y = 0; y < pixels.height; ++y) {
    const T* in = pixels.row(y) + channel;
    for (int64_t x = 0; x < pixels.width; ++x, in += pixels.channels, out += step) *out = function(*in);
  }
}

void normalize_channel(const at::Tensor& image, int64_t channel, float mean, float deviation, float* out,
                       int64_t step) {
  if (image.scalar_type() == at::kByte) {
    const auto table = normalized_bytes(mean, deviation);
    map_channel(Pixels<uint8_t>(image), channel, out, step, [&](uint8_t value) { return table[value]; });
  } else {
    map_channel(Pixels<float>(image), channel, out, step, [&](float value) { return (value - mean) / deviation; });
  }
}

}  // namespace
}  // namespace detail

at::Tensor crop(const at::Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  detail::check_pixel_image(image, "crop");
  LOCKSTEP_CHECK_VALUE(height > 0 && width > 0 && top >= 0 && left >= 0 && height <= image.size(0) &&
                           width <= image.size(1) && top <= image.size(0) - height && left <= image.size(1) - width,
                       "[crop] the part must have pixels and lie inside the image: top=", top, ", left=", left,
                       ", height=", height, ", width=", width, ", image=", image.sizes(),
                       "; resize the image before, or take a smaller part");
  return image.narrow(0, top, height).narrow(1, left, width);
}

at::Tensor center_crop(const at::Tensor& image, int64_t height, int64_t width) {
  detail::check_pixel_image(image, "center_crop");
  const auto margin = [](int64_t all, int64_t part) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(all - part) / 2));
  };
  return crop(image, margin(image.size(0), height), margin(image.size(1), width), height, width);
}

at::Tensor horizontal_flip_(const at::Tensor& image) {
  detail::check_pixel_image(image, "horizontal_flip_");
  detail::change_rows(image, [](const at::Tensor& rows) {
    detail::with_pixel_type(rows, [&](auto type) { detail::flip_rows(detail::Pixels<decltype(type)>(rows)); });
  });
  return image;
}

at::Tensor vertical_flip_(const at::Tensor& image) {
  detail::check_pixel_image(image, "vertical_flip_");
  detail::change_rows(image, [](const at::Tensor& rows) {
    detail::with_pixel_type(rows, [&](auto type) { detail::flip_columns(detail::Pixels<decltype(type)>(rows)); });
  });
  return image;
}

at::Tensor normalize(const at::Tensor& image, const NormalizeOptions& options) {
  detail::check_pixel_image(image, "normalize");
  detail::check_normalization(image, options);
  const at::Tensor rows = detail::has_dense_rows(image) ? image : image.contiguous();
  const int64_t height = rows.size(0);
  const int64_t width = rows.size(1);
  const int64_t channels = rows.size(2);
  at::Tensor result = options.channels_first ? detail::new_tensor({channels, height, width}, at::kFloat)
                                             : detail::new_tensor({height, width, channels}, at::kFloat);
  for (int64_t channel = 0; channel < channels; ++channel) {
    float* out = result.data_ptr<float>() + channel * (options.channels_first ? height * width : 1);
    detail::normalize_channel(rows, channel, static_cast<float>(detail::value_of_channel(options.mean, channel)),
                              static_cast<float>(detail::value_of_channel(options.std, channel)), out,
                              options.channels_first ? 1 : channels);
  }
  return result;
}

}  // namespace lockstep::data
