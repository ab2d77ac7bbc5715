#pragma once

#include "lockstep/xla/graph/build.h"

/// Inside: how the attributes of a node hold its window.
namespace lockstep::xla {

/// A view of the attributes of ReduceWindow, WindowMaxIndex and SelectAndScatter.
struct WindowAttributes {
  explicit WindowAttributes(const Node& node);
  Ints size, stride, low, high, dilation;
  /// What comes after.
  Ints rest;
};

/// A view of the attributes of Convolution.
struct ConvolutionAttributes {
  explicit ConvolutionAttributes(const Node& node);
  Ints stride, low, high, input_dilation, kernel_dilation;
  int64_t feature_groups, batch_groups;
};

}  // namespace lockstep::xla
