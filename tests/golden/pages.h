#pragma once

/// The parts of docs/differences.md that are the same in every run.
namespace lockstep::golden {

/// Differences for which there are no golden cases, each with the test that checks it.
extern const char* const kFurtherDifferences;

/// Every argument and option of TensorFlow's API pages, and what it does in lockstep.
extern const char* const kPageOptions;

/// TensorFlow's names that have another form in C++.
extern const char* const kOtherNames;

/// What to use instead of ParameterServerStrategy.
extern const char* const kParameterServers;

}  // namespace lockstep::golden
