#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image_ops.h"
#include "lockstep/data/formats/image/pixels.h"
#include "lockstep/data/formats/new_tensor.h"

namespace lockstep::data {
namespace detail {
namespace {

/// The values of one axis that a value of the result is made of: `weights[0]` belongs to position `first`.
struct Taps {
  int64_t first = 0;
  int64_t count = 0;
  const float* weights = nullptr;
};

/// The taps of all positions along one axis. The arithmetic is LibTorch's, in float.
class AxisTaps {
 public:
  AxisTaps(int64_t from, int64_t to, const ResizeOptions& options) : first_(static_cast<size_t>(to)) {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    const bool nearest = options.interpolation == Interpolation::Nearest;
    most_ = nearest || !options.antialias ? 2 : 2 * static_cast<int64_t>(std::ceil(std::max(scale, 1.0f))) + 1;
    weights_.resize(static_cast<size_t>(to * most_));
    count_.resize(static_cast<size_t>(to));
    for (int64_t i = 0; i < to; ++i) {
      if (nearest) {
        set_nearest(i, from, scale);
      } else if (options.antialias) {
        set_triangle(i, from, scale);
      } else {
        set_linear(i, from, scale);
      }
    }
  }

  Taps operator[](int64_t i) const {
    const auto place = static_cast<size_t>(i);
    return {first_[place], count_[place], weights_.data() + i * most_};
  }
  /// The positions of the source that are used: from the first to the end.
  int64_t begin() const { return *std::min_element(first_.begin(), first_.end()); }

 private:
  float* start(int64_t i, int64_t first, int64_t count) {
    first_[static_cast<size_t>(i)] = first;
    count_[static_cast<size_t>(i)] = count;
    return weights_.data() + i * most_;
  }

  void set_nearest(int64_t i, int64_t from, float scale) {
    const auto source = static_cast<int64_t>(std::floor((static_cast<float>(i) + 0.5f) * scale));
    start(i, std::min(source, from - 1), 1)[0] = 1;
  }

  void set_linear(int64_t i, int64_t from, float scale) {
    const float place = std::max(scale * (static_cast<float>(i) + 0.5f) - 0.5f, 0.0f);
    const int64_t first = std::min(static_cast<int64_t>(place), from - 1);
    const float second_weight = std::clamp(place - static_cast<float>(first), 0.0f, 1.0f);
    const bool has_second = first + 1 < from;
    float* weights = start(i, first, has_second ? 2 : 1);
    weights[0] = has_second ? 1 - second_weight : 1;
    if (has_second) weights[1] = second_weight;
  }

  void set_triangle(int64_t i, int64_t from, float scale) {
    const float support = std::max(scale, 1.0f);
    const float inverse = scale >= 1 ? 1.0f / scale : 1.0f;
    const float center = scale * (static_cast<float>(i) + 0.5f);
    const int64_t first = std::max(static_cast<int64_t>(center - support + 0.5f), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5f), from);
    const int64_t count = std::clamp(end - first, int64_t{1}, most_);
    float* weights = start(i, first, count);
    float total = 0;
    for (int64_t j = 0; j < count; ++j) {
      const float distance = std::abs((static_cast<float>(j + first) - center + 0.5f) * inverse);
      weights[j] = distance < 1 ? 1 - distance : 0;
      total += weights[j];
    }
    for (int64_t j = 0; j < count && total != 0; ++j) weights[j] /= total;
  }

  int64_t most_ = 0;
  std::vector<int64_t> first_;
  std::vector<int64_t> count_;
  std::vector<float> weights_;
};

uint8_t rounded(float value, uint8_t) { return static_cast<uint8_t>(std::clamp(std::nearbyintf(value), 0.0f, 255.0f)); }
float rounded(float value, float) { return value; }

template <class T>
void shrink_row(const T* in, const AxisTaps& columns, int64_t width, int64_t channels, float* out) {
  for (int64_t x = 0; x < width; ++x, out += channels) {
    const Taps taps = columns[x];
    const T* first = in + taps.first * channels;
    for (int64_t channel = 0; channel < channels; ++channel) {
      float sum = 0;
      for (int64_t j = 0; j < taps.count; ++j)
        sum += static_cast<float>(first[j * channels + channel]) * taps.weights[j];
      out[channel] = sum;
    }
  }
}

/// Along rows first, then along columns. Every row of the source is processed once, when the first row of the result
/// needs it.
template <class T>
at::Tensor resized(const at::Tensor& image, int64_t height, int64_t width, const ResizeOptions& options) {
  const Pixels<T> in(image);
  const AxisTaps rows(in.height, height, options);
  const AxisTaps columns(in.width, width, options);
  at::Tensor result = new_tensor({height, width, in.channels}, image.scalar_type());
  const int64_t row_values = width * in.channels;
  const int64_t begin = rows.begin();
  std::vector<float> narrow(static_cast<size_t>((in.height - begin) * row_values));
  std::vector<float> sums(static_cast<size_t>(row_values));
  int64_t done = begin;
  T* out = result.data_ptr<T>();
  for (int64_t y = 0; y < height; ++y, out += row_values) {
    const Taps taps = rows[y];
    for (; done < taps.first + taps.count; ++done) {
      shrink_row(in.row(done), columns, width, in.channels, narrow.data() + (done - begin) * row_values);
    }
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t j = 0; j < taps.count; ++j) {
      const float weight = taps.weights[j];
      const float* from = narrow.data() + (taps.first + j - begin) * row_values;
      for (int64_t i = 0; i < row_values; ++i) sums[static_cast<size_t>(i)] += from[i] * weight;
    }
    for (int64_t i = 0; i < row_values; ++i) out[i] = rounded(sums[static_cast<size_t>(i)], T{});
  }
  return result;
}

}  // namespace
}  // namespace detail

at::Tensor resize(const at::Tensor& image, int64_t height, int64_t width, const ResizeOptions& options) {
  constexpr int64_t kMostPixels = int64_t{1} << 40;
  detail::check_pixel_image(image, "resize");
  LOCKSTEP_CHECK_VALUE(height > 0 && width > 0 && height <= kMostPixels / width,
                       "[resize] the size must be positive, and at most 2^40 pixels: height=", height,
                       ", width=", width);
  if (image.size(0) == height && image.size(1) == width) return image;
  const at::Tensor rows = detail::has_dense_rows(image) ? image : image.contiguous();
  return detail::with_pixel_type(
      rows, [&](auto type) { return detail::resized<decltype(type)>(rows, height, width, options); });
}

at::Tensor resize_shorter_side(const at::Tensor& image, int64_t size, const ResizeOptions& options) {
  detail::check_pixel_image(image, "resize_shorter_side");
  LOCKSTEP_CHECK_VALUE(size > 0 && size <= int64_t{1} << 30,
                       "[resize_shorter_side] the size must be positive, and at most 2^30: size=", size);
  const int64_t height = image.size(0);
  const int64_t width = image.size(1);
  return height <= width ? resize(image, size, size * width / height, options)
                         : resize(image, size * height / width, size, options);
}

}  // namespace lockstep::data
