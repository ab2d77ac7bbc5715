#pragma once

#include <iosfwd>

#include "tools/doctor/doctor_trace.h"
#include "tools/print_result.h"

namespace lockstep::tools {

/// Prints a diagnosis; its summary is the last line.
void print(const Diagnosis& diagnosis, std::ostream& out);

Json to_json(const Diagnosis& diagnosis);

}  // namespace lockstep::tools
