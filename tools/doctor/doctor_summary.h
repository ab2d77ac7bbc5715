#pragma once

#include <string>

#include "tools/doctor/doctor_trace.h"

/// Summarizes a diagnosis in one sentence.
namespace lockstep::tools {

/// Sets `in_step` and `summary` from the rest.
void summarize(Diagnosis& diagnosis);

/// `call 17, all_reduce(SUM, float32[3]) at train.cpp:57`.
std::string name_of(const RecordedCall& call);

/// Returns which ranks made which call where they differ; empty where they do not.
std::string describe_mismatch(const GroupTrace& group);

}  // namespace lockstep::tools
