#include "lockstep/nn/batch_norm_kernel.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "lockstep/base/error.h"

namespace lockstep::nn::detail {
namespace {

/// Sums that are added side by side, so that the compiler vectorises them.
constexpr int64_t kLanes = 8;
/// Channels that are summed side by side where the values of a position are together.
constexpr int64_t kBlock = 64;
/// Elements that are worth a thread.
constexpr int64_t kElementsPerThread = 32768;

/// The memory of a tensor: `rows` times planes of `positions` values of one channel, or, where `is_last`, `rows` times
/// one value of each channel.
struct ChannelLayout {
  int64_t rows = 0, channels = 0, positions = 1;
  bool is_last = false;

  explicit ChannelLayout(const at::Tensor& input) : rows(input.size(0)), channels(input.size(1)) {
    for (int64_t dim = 2; dim < input.dim(); ++dim) positions *= input.size(dim);
    is_last = !input.is_contiguous() || positions == 1;
    if (!is_last) return;
    rows *= positions;
    positions = 1;
  }

  int64_t count() const { return rows * positions; }
  int64_t channels_per_thread() const {
    return std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(count(), 1));
  }
};

/// Adds `term(i)` for all i below `count`.
template <class Term>
double sum_of(int64_t count, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  double sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Sums `of_channel(channel)(element)` over values of channels.
template <class OfChannel>
struct ChannelSum {
  OfChannel of_channel;
  double* sums;

  /// Over a block of channels, which lie side by side.
  void add_block(const ChannelLayout& layout, int64_t first, int64_t count) const {
    double block[kBlock] = {};
    for (int64_t row = 0; row < layout.rows; ++row) {
      const int64_t offset = row * layout.channels + first;
      for (int64_t c = 0; c < count; ++c) block[c] += of_channel(first + c)(offset + c);
    }
    std::copy_n(block, count, sums + first);
  }

  void add_plane(const ChannelLayout& layout, int64_t row, int64_t channel) const {
    const auto of_element = of_channel(channel);
    const int64_t offset = (row * layout.channels + channel) * layout.positions;
    const double sum = sum_of(layout.positions, [&](int64_t i) { return of_element(offset + i); });
    sums[channel] = row == 0 ? sum : sums[channel] + sum;
  }
};

/// Makes sums over all values of each channel. Those of a plane are made one after the other, while it is in the cache.
template <class... OfChannel>
void sum_channels(const ChannelLayout& layout, const ChannelSum<OfChannel>&... sums) {
  if (layout.rows == 0) {
    (std::fill_n(sums.sums, layout.channels, 0.0), ...);
    return;
  }
  if (layout.is_last) {
    const int64_t grain = std::max<int64_t>(1, layout.channels_per_thread() / kBlock);
    return at::parallel_for(0, (layout.channels + kBlock - 1) / kBlock, grain, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kBlock; first < std::min(end * kBlock, layout.channels); first += kBlock) {
        (sums.add_block(layout, first, std::min(kBlock, layout.channels - first)), ...);
      }
    });
  }
  at::parallel_for(0, layout.channels, layout.channels_per_thread(), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t row = 0; row < layout.rows; ++row) (sums.add_plane(layout, row, channel), ...);
    }
  });
}

/// Writes `of_channel(channel)(element)` to each element. What it reads is not written.
template <class T, class OfChannel>
void write_elements(const ChannelLayout& layout, T* to, const OfChannel& of_channel) {
  if (layout.is_last) {
    const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(layout.channels, 1));
    return at::parallel_for(0, layout.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t offset = row * layout.channels;
#pragma GCC ivdep
        for (int64_t c = 0; c < layout.channels; ++c) to[offset + c] = of_channel(c)(offset + c);
      }
    });
  }
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(layout.positions, 1));
  at::parallel_for(0, layout.rows * layout.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const auto of_element = of_channel(plane % layout.channels);
      const int64_t first = plane * layout.positions, last = first + layout.positions;
#pragma GCC ivdep
      for (int64_t i = first; i < last; ++i) to[i] = of_element(i);
    }
  });
}

/// The numbers of channels in the dtype of the elements.
template <class T>
std::vector<T> numbers_of(const at::Tensor& doubles) {
  const auto* const begin = doubles.data_ptr<double>();
  return {begin, begin + doubles.numel()};
}

/// Calls `function` with a value of the tensor's dtype.
template <class F>
auto with_dtype(const at::Tensor& tensor, const F& function) {
  return tensor.scalar_type() == at::kFloat ? function(float()) : function(double());
}

at::Tensor new_doubles(int64_t count) { return at::empty({count}, at::TensorOptions(at::kDouble).device(at::kCPU)); }

}  // namespace

bool suits_kernels(const at::Tensor& input) {
  if (!input.is_cpu() || input.layout() != at::kStrided) return false;
  if (input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble) return false;
  return input.is_contiguous() || (input.dim() == 4 && input.is_contiguous(at::MemoryFormat::ChannelsLast)) ||
         (input.dim() == 5 && input.is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

at::Tensor channel_statistics(const at::Tensor& input) {
  const ChannelLayout layout(input);
  at::Tensor statistics = new_doubles(2 * layout.channels + 1);
  auto* const means = statistics.data_ptr<double>();
  auto* const squares = means + layout.channels;
  squares[layout.channels] = static_cast<double>(layout.count());
  with_dtype(input, [&](auto zero) {
    using T = decltype(zero);
    const T* const x = input.data_ptr<T>();
    const auto value = [x](int64_t i) { return static_cast<double>(x[i]); };
    const auto of_channel = [value](int64_t) { return value; };
    sum_channels(layout, ChannelSum<decltype(of_channel)>{of_channel, means});
    const double count = std::max<double>(1, static_cast<double>(layout.count()));
    for (int64_t c = 0; c < layout.channels; ++c) means[c] /= count;
    const auto square = [x, means](int64_t channel) {
      return [x, mean = means[channel]](int64_t i) {
        const double distance = static_cast<double>(x[i]) - mean;
        return distance * distance;
      };
    };
    sum_channels(layout, ChannelSum<decltype(square)>{square, squares});
  });
  return statistics;
}

at::Tensor joined_statistics(const at::Tensor& of_replicas) {
  const int64_t replicas = of_replicas.size(0), width = of_replicas.size(1), channels = (width - 1) / 2;
  at::Tensor joined = new_doubles(2 * channels + 1);
  const auto* const all = of_replicas.data_ptr<double>();
  auto* const means = joined.data_ptr<double>();
  double count = 0;
  for (int64_t r = 0; r < replicas; ++r) count += all[r * width + 2 * channels];
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < replicas; ++r) sum += all[r * width + c] * all[r * width + 2 * channels];
    const double mean = sum / std::max(count, 1.0);
    for (int64_t r = 0; r < replicas; ++r) {
      const double distance = all[r * width + c] - mean;
      squares += all[r * width + channels + c] + distance * distance * all[r * width + 2 * channels];
    }
    means[c] = mean;
    means[channels + c] = squares;
  }
  means[2 * channels] = count;
  return joined;
}

at::Tensor normalized(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& scale,
                      const at::Tensor& shift) {
  at::Tensor result = at::empty_like(input);
  with_dtype(input, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> means = numbers_of<T>(mean), scales = numbers_of<T>(scale), shifts = numbers_of<T>(shift);
    const T *const x = input.data_ptr<T>(), *const m = means.data(), *const s = scales.data(), *const b = shifts.data();
    write_elements(ChannelLayout(input), result.data_ptr<T>(), [=](int64_t c) {
      return [x, mean = m[c], scale = s[c], shift = b[c]](int64_t i) { return (x[i] - mean) * scale + shift; };
    });
  });
  return result;
}

at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean) {
  const ChannelLayout layout(input);
  at::Tensor sums = new_doubles(2 * layout.channels);
  const auto* const means = mean.data_ptr<double>();
  with_dtype(input, [&](auto zero) {
    using T = decltype(zero);
    const T *const x = input.data_ptr<T>(), *const dy = gradient.data_ptr<T>();
    const auto value = [dy](int64_t i) { return static_cast<double>(dy[i]); };
    const auto of_channel = [value](int64_t) { return value; };
    const auto product = [x, dy, means](int64_t channel) {
      return [x, dy, mean = means[channel]](int64_t i) {
        return static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mean);
      };
    };
    auto* const to = sums.data_ptr<double>();
    sum_channels(layout, ChannelSum<decltype(of_channel)>{of_channel, to},
                 ChannelSum<decltype(product)>{product, to + layout.channels});
  });
  return sums;
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& offset, const at::Tensor& slope, const at::Tensor& scale) {
  at::Tensor result = at::empty_like(input);
  with_dtype(input, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> means = numbers_of<T>(mean), offsets = numbers_of<T>(offset);
    const std::vector<T> slopes = numbers_of<T>(slope), scales = numbers_of<T>(scale);
    const T *const x = input.data_ptr<T>(), *const dy = gradient.data_ptr<T>(), *const m = means.data();
    const T *const o = offsets.data(), *const k = slopes.data(), *const s = scales.data();
    write_elements(ChannelLayout(input), result.data_ptr<T>(), [=](int64_t c) {
      return [x, dy, mean = m[c], offset = o[c], slope = k[c], scale = s[c]](int64_t i) {
        return (dy[i] - offset - (x[i] - mean) * slope) * scale;
      };
    });
  });
  return result;
}

}  // namespace lockstep::nn::detail
