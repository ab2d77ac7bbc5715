#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image_ops.h"
#include "lockstep/data/formats/image/pixels.h"

namespace lockstep::data {
namespace detail {
namespace {

/// The largest value of an image, and how a float becomes a value of it.
template <class T>
constexpr float kLargest = 1.0f;
template <>
constexpr float kLargest<uint8_t> = 255.0f;

template <class T>
T clamped(float value) {
  return static_cast<T>(std::clamp(value, 0.0f, kLargest<T>));
}

void check_colors(const at::Tensor& image, std::string_view operation) {
  check_pixel_image(image, operation);
  LOCKSTEP_CHECK_VALUE(image.size(2) == 1 || image.size(2) == 3, "[", operation,
                       "] the image must have 1 or 3 channels: channels=", image.size(2),
                       "; decode with ImageOptions::channels = 3");
}

void check_factor(double factor, std::string_view operation) {
  LOCKSTEP_CHECK_VALUE(factor >= 0 && std::isfinite(factor), "[", operation,
                       "] the factor must not be negative: factor=", factor);
}

/// Gray is truncated where values are bytes.
template <class T>
T gray_of(const T* pixel) {
  return static_cast<T>(0.2989f * static_cast<float>(pixel[0]) + 0.587f * static_cast<float>(pixel[1]) +
                        0.114f * static_cast<float>(pixel[2]));
}

template <class T, class Change>
void for_each_pixel(const Pixels<T>& pixels, const Change& change) {
  for (int64_t y = 0; y < pixels.height; ++y) {
    T* pixel = pixels.row(y);
    for (int64_t x = 0; x < pixels.width; ++x, pixel += pixels.channels) change(pixel);
  }
}

template <class Change>
void change_values(const Pixels<float>& pixels, const Change& change) {
  for_each_pixel(pixels, [&](float* pixel) {
    for (int64_t channel = 0; channel < pixels.channels; ++channel)
      pixel[channel] = clamped<float>(change(pixel[channel]));
  });
}

/// Of bytes there are 256 results.
template <class Change>
void change_values(const Pixels<uint8_t>& pixels, const Change& change) {
  std::array<uint8_t, 256> table{};
  for (size_t value = 0; value < table.size(); ++value) {
    table[value] = clamped<uint8_t>(change(static_cast<float>(value)));
  }
  for (int64_t y = 0; y < pixels.height; ++y) {
    uint8_t* row = pixels.row(y);
    for (int64_t i = 0; i < pixels.width * pixels.channels; ++i) row[i] = table[row[i]];
  }
}

template <class T>
float mean_gray(const Pixels<T>& pixels) {
  double sum = 0;
  for_each_pixel(pixels,
                 [&](const T* pixel) { sum += static_cast<double>(pixels.channels == 1 ? pixel[0] : gray_of(pixel)); });
  return static_cast<float>(sum / static_cast<double>(pixels.height * pixels.width));
}

template <class T>
void change_contrast(const Pixels<T>& pixels, float factor, float rest) {
  const float mean = rest * mean_gray(pixels);
  change_values(pixels, [&](float value) { return factor * value + mean; });
}

template <class T>
void change_saturation(const Pixels<T>& pixels, float factor, float rest) {
  for_each_pixel(pixels, [&](T* pixel) {
    const float gray = rest * static_cast<float>(gray_of(pixel));
    for (int channel = 0; channel < 3; ++channel) {
      pixel[channel] = clamped<T>(factor * static_cast<float>(pixel[channel]) + gray);
    }
  });
}

struct Hsv {
  float hue;
  float saturation;
  float value;
};

Hsv hsv_of(float red, float green, float blue) {
  const float largest = std::max({red, green, blue});
  const float smallest = std::min({red, green, blue});
  if (largest == smallest) return {0, 0, largest};
  const float range = largest - smallest;
  const float from_red = (largest - red) / range;
  const float from_green = (largest - green) / range;
  const float from_blue = (largest - blue) / range;
  const float sixths = largest == red     ? from_blue - from_green
                       : largest == green ? 2.0f + from_red - from_blue
                                          : 4.0f + from_green - from_red;
  return {std::fmod(sixths / 6.0f + 1.0f, 1.0f), range / largest, largest};
}

std::array<float, 3> rgb_of(const Hsv& color) {
  const float sixths = color.hue * 6.0f;
  const float whole = std::floor(sixths);
  const float part = sixths - whole;
  const float v = color.value;
  const float p = std::clamp(v * (1.0f - color.saturation), 0.0f, 1.0f);
  const float q = std::clamp(v * (1.0f - color.saturation * part), 0.0f, 1.0f);
  const float t = std::clamp(v * (1.0f - color.saturation * (1.0f - part)), 0.0f, 1.0f);
  switch (static_cast<int>(whole) % 6) {
    case 0:
      return {v, t, p};
    case 1:
      return {q, v, p};
    case 2:
      return {p, v, t};
    case 3:
      return {p, q, v};
    case 4:
      return {t, p, v};
    default:
      return {v, p, q};
  }
}

float to_unit(uint8_t value) { return static_cast<float>(value) / 255.0f; }
float to_unit(float value) { return value; }
void from_unit(float unit, uint8_t& value) { value = static_cast<uint8_t>(unit * (255.0f + 1.0f - 1e-3f)); }
void from_unit(float unit, float& value) { value = unit; }

template <class T>
void shift_hue(const Pixels<T>& pixels, float shift) {
  for_each_pixel(pixels, [&](T* pixel) {
    Hsv color = hsv_of(to_unit(pixel[0]), to_unit(pixel[1]), to_unit(pixel[2]));
    color.hue = std::fmod(color.hue + shift + 1.0f, 1.0f);
    const auto rgb = rgb_of(color);
    for (size_t channel = 0; channel < 3; ++channel) from_unit(rgb[channel], pixel[channel]);
  });
}

/// Calls `change` with the pixels of the image.
template <class Change>
at::Tensor change_pixels(const at::Tensor& image, const Change& change) {
  change_rows(image, [&](const at::Tensor& rows) {
    with_pixel_type(rows, [&](auto type) { change(Pixels<decltype(type)>(rows)); });
  });
  return image;
}

}  // namespace
}  // namespace detail

at::Tensor adjust_brightness_(const at::Tensor& image, double factor) {
  detail::check_colors(image, "adjust_brightness_");
  detail::check_factor(factor, "adjust_brightness_");
  const auto scale = static_cast<float>(factor);
  return detail::change_pixels(
      image, [&](const auto& pixels) { detail::change_values(pixels, [&](float value) { return scale * value; }); });
}

at::Tensor adjust_contrast_(const at::Tensor& image, double factor) {
  detail::check_colors(image, "adjust_contrast_");
  detail::check_factor(factor, "adjust_contrast_");
  return detail::change_pixels(image, [&](const auto& pixels) {
    detail::change_contrast(pixels, static_cast<float>(factor), static_cast<float>(1 - factor));
  });
}

at::Tensor adjust_saturation_(const at::Tensor& image, double factor) {
  detail::check_colors(image, "adjust_saturation_");
  detail::check_factor(factor, "adjust_saturation_");
  if (image.size(2) == 1) return image;
  return detail::change_pixels(image, [&](const auto& pixels) {
    detail::change_saturation(pixels, static_cast<float>(factor), static_cast<float>(1 - factor));
  });
}

at::Tensor adjust_hue_(const at::Tensor& image, double shift) {
  detail::check_colors(image, "adjust_hue_");
  LOCKSTEP_CHECK_VALUE(shift >= -0.5 && shift <= 0.5,
                       "[adjust_hue_] the shift must be from -0.5 to 0.5: shift=", shift);
  if (image.size(2) == 1) return image;
  return detail::change_pixels(image,
                               [&](const auto& pixels) { detail::shift_hue(pixels, static_cast<float>(shift)); });
}

}  // namespace lockstep::data
