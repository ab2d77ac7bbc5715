#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/strategy/variable.h"
#include "lockstep/value/indexed_slices.h"

/// Inside: writing to variables, below the rules that say what is written (variable_write.cpp, variable_central.cpp).
namespace lockstep::detail {

enum class Write { kAssign, kAdd, kSub };
enum class RowWrite { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

/// Writes a tensor of the same shape, or a scalar, of any dtype and device.
void write_component(Write write, at::Tensor component, const at::Tensor& value);
/// Writes rows; the same one may be named twice.
void write_rows(RowWrite write, at::Tensor component, const IndexedSlices& rows);

/// Throws where the value is a number, which is the same on all replicas and has no sum, unless it is zero.
void check_has_sum(const Variable::Impl& variable, const VariableOperand& value);

/// The same for a variable that is kept once. In a replica all replicas write together: what they give is combined by
/// the variable's aggregation, and rows are written one replica after the other, whatever the aggregation.
void write_central(const Variable::Impl& variable, Write write, const VariableOperand& value);
void write_central_rows(const Variable::Impl& variable, RowWrite write, const IndexedSlices& rows);

}  // namespace lockstep::detail
