#pragma once

#include <optional>

#include "lockstep/data/element/spec.h"
#include "lockstep/data/formats/image/image.h"

namespace lockstep::data::detail {

/// What is known of images that are decoded with these options.
inline LeafSpec image_spec(const ImageOptions& options) {
  const auto channels = options.channels > 0 ? PartialShape::Dim(options.channels) : std::nullopt;
  return {LeafSpec::Kind::Tensor, options.dtype, PartialShape{std::nullopt, std::nullopt, channels}};
}

}  // namespace lockstep::data::detail
