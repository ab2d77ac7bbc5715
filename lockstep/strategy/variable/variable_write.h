#pragma once

#include "lockstep/strategy/variable/variable_options.h"
#include "lockstep/value/indexed_slices.h"

/// Internal: writes to variables, by the rules of their options.
namespace lockstep::detail {

struct VariableImpl;

enum class Write { Assign, Add, Sub };
enum class RowWrite { Add, Sub, Mul, Div, Min, Max, Update };

/// Writes a value to the components that the calling thread writes.
void write_variable(const VariableImpl& variable, Write write, const VariableOperand& value);

/// Writes rows; one row may be named several times.
void write_variable_rows(const VariableImpl& variable, RowWrite write, const IndexedSlices& rows);

}  // namespace lockstep::detail
