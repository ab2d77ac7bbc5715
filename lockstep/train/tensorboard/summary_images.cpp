#include "lockstep/train/tensorboard/summary_images.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image.h"

namespace lockstep::tensorboard {
namespace {

bool is_number_of_channels(int64_t size) { return size >= 1 && size <= 4; }

/// Batch, height, width, channels.
at::Tensor with_channels_last(const at::Tensor& images, ImageLayout layout) {
  LOCKSTEP_CHECK_VALUE(images.dim() == 3 || images.dim() == 4,
                       "[SummaryWriter::image] an image has 3 dimensions, several have 4: sizes=", images.sizes());
  const at::Tensor batch = images.dim() == 3 ? images.unsqueeze(0) : images;
  const bool first = is_number_of_channels(batch.size(1));
  const bool last = is_number_of_channels(batch.size(3));
  if (layout == ImageLayout::Auto) {
    LOCKSTEP_CHECK_VALUE(first != last, "[SummaryWriter::image] the sizes do not say which dimension is the channels: ",
                         "sizes=", images.sizes(), "; give ImageLayout::HWC or ImageLayout::CHW");
    layout = first ? ImageLayout::CHW : ImageLayout::HWC;
  }
  LOCKSTEP_CHECK_VALUE(layout == ImageLayout::CHW ? first : last,
                       "[SummaryWriter::image] an image has 1 to 4 channels: sizes=", images.sizes(),
                       ", layout=", layout == ImageLayout::CHW ? "CHW" : "HWC");
  return layout == ImageLayout::CHW ? batch.permute({0, 2, 3, 1}) : batch;
}

at::Tensor as_bytes(const at::Tensor& images) {
  if (images.scalar_type() == at::kByte) return images;
  LOCKSTEP_CHECK_VALUE(
      at::isFloatingType(images.scalar_type()),
      "[SummaryWriter::image] images are of uint8, or floating point from 0 to 1: dtype=", images.scalar_type());
  return images.to(at::kDouble).nan_to_num(0, 1, 0).clamp(0, 1).mul(255).round().to(at::kByte);
}

}  // namespace

std::vector<std::string> encode_images(const at::Tensor& images, ImageLayout layout) {
  const at::NoGradGuard no_grad;
  const at::Tensor pixels = as_bytes(with_channels_last(images.detach().to(at::kCPU), layout)).contiguous();
  std::vector<std::string> parts{std::to_string(pixels.size(2)), std::to_string(pixels.size(1))};
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    const data::Bytes file = data::encode_png(pixels[i]);
    parts.emplace_back(file.data(), file.size());
  }
  return parts;
}

}  // namespace lockstep::tensorboard
