#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "tools/train/examples.h"

namespace lockstep::tools {

/// How inputs are scaled: (x - shift) * scale. In float64 where values are larger than their differences.
struct InputScaling {
  torch::Tensor shift = {};
  torch::Tensor scale = {};
};

/// Returns the scaling for `mode`: "standard", "unit" or "none". Reads all examples; a dataset that is made of them
/// afterwards is not changed by this. Warns where float32, in which `none` and `unit` are computed, cannot tell the
/// values of an input apart.
InputScaling input_scaling(const std::string& mode, const DataForm& form, const ExamplePart& training);

}  // namespace lockstep::tools
