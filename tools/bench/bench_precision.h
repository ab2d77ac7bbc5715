#pragma once

#include <CLI/CLI.hpp>

namespace lockstep::tools {

/// `lockstep bench precision`.
void add_bench_precision(CLI::App& bench);

}  // namespace lockstep::tools
