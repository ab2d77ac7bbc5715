#pragma once

#include <functional>
#include <vector>

#include "lockstep/xla/graph/ops/build.h"

namespace lockstep::xla {

/// What a loop over time computes with. Step t sees element t of each sequence (dimension 0, all of equal length), the
/// carries as the step before left them, and the constants.
struct ScanOperands {
  std::vector<Value> sequences;
  std::vector<Value> carries;
  std::vector<Value> constants;
  /// From the last element to the first.
  bool reverse = false;
};

/// What a step returns, and what the loop does: the carries after the last step, and outputs stacked along dimension 0
/// at the positions of the elements that they belong to.
struct ScanValues {
  std::vector<Value> carries;
  std::vector<Value> outputs;
};

/// The step: called once, with parameters in place of the operands. The carries it returns have the dtypes and shapes
/// of those it was given.
using ScanStep = std::function<ScanValues(const ScanOperands&)>;

/// One loop of XLA (stablehlo.while), however long the sequences are.
LOCKSTEP_API ScanValues scan(const ScanOperands& operands, const ScanStep& step);

}  // namespace lockstep::xla
