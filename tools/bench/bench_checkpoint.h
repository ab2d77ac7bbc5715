#pragma once

#include <CLI/CLI.hpp>

#include "bench/checkpoint.h"
#include "tools/print_result.h"

namespace lockstep::tools {

/// `lockstep bench checkpoint`.
void add_bench_checkpoint(CLI::App& bench);

void report_checkpoint(const bench::CheckpointOptions& options, ResultStyle style);

}  // namespace lockstep::tools
