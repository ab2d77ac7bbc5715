#pragma once

#include "lockstep/xla/tensor/aten_call.h"

/// Internal: checks of values that LibTorch makes on the CPU and XLA does not: see docs/tpu.md, "Checks of values".
///
/// LOCKSTEP_XLA_CHECKS=1: the program makes them in every step, and the error comes when a value is read
/// (check_flags.h). auto, in the first runs of a device: values that are known when the function is called (arguments
/// of the step, and views of them) are read and checked then. 0: none.
namespace lockstep::xla {

enum class ValueChecks { Off, FirstRuns, All, Known };

/// What is checked; at first LOCKSTEP_XLA_CHECKS. `Known`: as `FirstRuns`, in all runs. For tests.
LOCKSTEP_API void set_value_checks(ValueChecks checks);

/// Whether a value is a number of the function; these are always checked.
bool is_constant(const Node& node);

/// Indices must be in [low, high).
void check_indices(const AtenCall& call, const Value& indices, int64_t low, int64_t high);
/// The same for class labels, which may also be `ignored`.
void check_labels(const AtenCall& call, const Value& labels, int64_t classes, int64_t ignored);
/// Integers must not be divided by zero.
void check_divisor(const AtenCall& call, const Value& divisor);

}  // namespace lockstep::xla
