#include <cmath>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image_ops.h"
#include "lockstep/data/formats/image/pixels.h"

namespace lockstep::data {
namespace {

/// Where numbers are drawn, also where a replica on a GPU calls. They have the default dtype.
constexpr at::DeviceType kHost = at::kCPU;

/// A number from 0 to `most`.
int64_t random_offset(int64_t most) {
  return at::randint(0, most + 1, {1}, at::device(kHost).dtype(at::kLong)).item<int64_t>();
}

bool random_choice(double probability, std::string_view operation) {
  LOCKSTEP_CHECK_VALUE(probability >= 0 && probability <= 1, "[", operation,
                       "] the probability must be from 0 to 1: probability=", probability);
  return at::rand({1}, kHost).item<float>() < probability;
}

/// A number of a range around `center`; nothing where the range is empty, without a draw.
std::optional<double> random_factor(double center, double range, double least) {
  if (range == 0) return std::nullopt;
  return at::empty({1}, kHost).uniform_(std::max(center - range, least), center + range).item<float>();
}

void check_jitter(const ColorJitter& jitter) {
  const auto is_range = [](double range) { return range >= 0 && std::isfinite(range); };
  LOCKSTEP_CHECK_VALUE(is_range(jitter.brightness) && is_range(jitter.contrast) && is_range(jitter.saturation),
                       "[color_jitter_] ranges must not be negative: brightness=", jitter.brightness,
                       ", contrast=", jitter.contrast, ", saturation=", jitter.saturation);
  LOCKSTEP_CHECK_VALUE(jitter.hue >= 0 && jitter.hue <= 0.5,
                       "[color_jitter_] the range of hues must be from 0 to 0.5: hue=", jitter.hue);
}

}  // namespace

at::Tensor random_crop(const at::Tensor& image, int64_t height, int64_t width) {
  detail::check_pixel_image(image, "random_crop");
  LOCKSTEP_CHECK_VALUE(height > 0 && width > 0 && height <= image.size(0) && width <= image.size(1),
                       "[random_crop] the part must have pixels and be no larger than the image: height=", height,
                       ", width=", width, ", image=", image.sizes(),
                       "; resize the image before, or take a smaller part");
  if (height == image.size(0) && width == image.size(1)) return image;
  const int64_t top = random_offset(image.size(0) - height);
  const int64_t left = random_offset(image.size(1) - width);
  return crop(image, top, left, height, width);
}

at::Tensor random_horizontal_flip_(const at::Tensor& image, double probability) {
  detail::check_pixel_image(image, "random_horizontal_flip_");
  return random_choice(probability, "random_horizontal_flip_") ? horizontal_flip_(image) : image;
}

at::Tensor random_vertical_flip_(const at::Tensor& image, double probability) {
  detail::check_pixel_image(image, "random_vertical_flip_");
  return random_choice(probability, "random_vertical_flip_") ? vertical_flip_(image) : image;
}

at::Tensor color_jitter_(const at::Tensor& image, const ColorJitter& jitter) {
  detail::check_pixel_image(image, "color_jitter_");
  check_jitter(jitter);
  const at::Tensor order = at::randperm(4, at::device(kHost).dtype(at::kLong));
  const auto brightness = random_factor(1, jitter.brightness, 0);
  const auto contrast = random_factor(1, jitter.contrast, 0);
  const auto saturation = random_factor(1, jitter.saturation, 0);
  const auto hue = random_factor(0, jitter.hue, -0.5);
  for (int64_t i = 0; i < order.size(0); ++i) {
    const int64_t change = order.data_ptr<int64_t>()[i];
    if (change == 0 && brightness) adjust_brightness_(image, *brightness);
    if (change == 1 && contrast) adjust_contrast_(image, *contrast);
    if (change == 2 && saturation) adjust_saturation_(image, *saturation);
    if (change == 3 && hue) adjust_hue_(image, *hue);
  }
  return image;
}

}  // namespace lockstep::data
