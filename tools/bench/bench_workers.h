#pragma once

#include <vector>

#include "bench/all_reduce.h"
#include "bench/step.h"
#include "tools/print_result.h"

/// `lockstep bench WHAT --workers N`: measurements on several workers of this machine.
///
/// In a process that no launcher has started they do not return: the process becomes a launcher that runs its own
/// command line in N workers. Worker 0 prints.
namespace lockstep::tools {

void report_all_reduce_on_workers(int num_workers, const bench::AllReduceOptions& options, ResultStyle style);

/// Measures each of `cases`, in this order; `replicas` in them is ignored.
void report_step_on_workers(int num_workers, const std::vector<bench::StepOptions>& cases, ResultStyle style);

/// Measures a step with each kind of compression of gradients; over Gloo, unless LOCKSTEP_ENGINE says otherwise.
void report_compression_on_workers(int num_workers, const bench::StepOptions& options, ResultStyle style);

Json step_json(const bench::StepResult& result);

}  // namespace lockstep::tools
