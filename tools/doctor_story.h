#pragma once

#include <string>

#include "tools/doctor_trace.h"

/// What a diagnosis comes down to, in one sentence.
namespace lockstep::tools {

/// Sets `in_step` and `story` from the rest.
void tell_story(Diagnosis& diagnosis);

/// `call 17, all_reduce(SUM, float32[3]) at train.cpp:57`.
std::string name_of(const RecordedCall& call);

/// Says which ranks made which call where they differ; empty where they do not.
std::string describe_mismatch(const GroupTrace& group);

}  // namespace lockstep::tools
