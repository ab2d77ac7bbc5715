#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/train/tensorboard/image_layout.h"

/// Internal: tensors as PNG images.
namespace lockstep::tensorboard {

/// Returns width, height and the PNG file of each image, as TensorBoard's images are stored. See SummaryWriter::image.
std::vector<std::string> encode_images(const at::Tensor& images, ImageLayout layout);

}  // namespace lockstep::tensorboard
