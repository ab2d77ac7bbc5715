#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

/// Access to the pixels of images, for operations on them.
namespace lockstep::data::detail {

/// Throws c10::ValueError unless the image is [height, width, channels] of uint8 or float on the CPU, with pixels.
void check_pixel_image(const at::Tensor& image, std::string_view operation);

/// Whether the values of a row are in order in memory.
bool has_dense_rows(const at::Tensor& image);

/// The rows of an image in memory. `T` is uint8_t or float.
template <class T>
struct Pixels {
  T* data;
  int64_t row_stride;
  int64_t height;
  int64_t width;
  int64_t channels;

  explicit Pixels(const at::Tensor& image)
      : data(image.data_ptr<T>()),
        row_stride(image.stride(0)),
        height(image.size(0)),
        width(image.size(1)),
        channels(image.size(2)) {}

  T* row(int64_t y) const { return data + y * row_stride; }
};

/// Notes a write to the memory of the image, as LibTorch's own operations do. Throws c10::ValueError where rows share
/// memory, as those of an expanded tensor do.
void note_write(const at::Tensor& image);

/// Calls `change` with the image, or with a copy whose rows are dense and which is copied back.
template <class Change>
void change_rows(const at::Tensor& image, Change&& change) {
  note_write(image);
  if (has_dense_rows(image)) return change(image);
  const at::Tensor copy = image.contiguous();
  change(copy);
  image.copy_(copy);
}

/// Calls `body` with a value of the image's type.
template <class Body>
decltype(auto) with_pixel_type(const at::Tensor& image, Body&& body) {
  return image.scalar_type() == at::kByte ? body(uint8_t{}) : body(float{});
}

}  // namespace lockstep::data::detail
