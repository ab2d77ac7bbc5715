#pragma once

#include <CLI/CLI.hpp>

namespace lockstep::tools {

/// `lockstep bench gpu`: steps, captured steps and collectives on a GPU.
void add_bench_gpu(CLI::App& bench);

}  // namespace lockstep::tools
