#pragma once

#include <CLI/CLI.hpp>

#include "bench/trainer.h"
#include "tools/print_result.h"

namespace lockstep::tools {

/// `lockstep bench trainer`.
void add_bench_trainer(CLI::App& bench);

void report_trainer(const bench::StepOptions& options, ResultStyle style);

}  // namespace lockstep::tools
