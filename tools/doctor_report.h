#pragma once

#include <iosfwd>

#include "tools/doctor_trace.h"
#include "tools/report.h"

namespace lockstep::tools {

/// Prints all that a diagnosis has found; its story is the last line.
void print(const Diagnosis& diagnosis, std::ostream& out);

Json to_json(const Diagnosis& diagnosis);

}  // namespace lockstep::tools
