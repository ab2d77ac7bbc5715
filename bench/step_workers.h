#pragma once

#include "bench/step.h"
#include "bench/worker_team.h"

namespace lockstep::bench {

/// The step of `bench_step` with one replica on each worker in place of the replicas of one process: `seconds_plain`
/// and `seconds_1` are of the first worker while the others sleep, `seconds_alone` of all workers without any
/// communication. All workers call it; the first one has the result.
StepResult bench_step_workers(WorkerTeam& team, const StepOptions& options);

}  // namespace lockstep::bench
