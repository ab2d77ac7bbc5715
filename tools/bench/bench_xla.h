#pragma once

#include <CLI/CLI.hpp>

#include "tools/print_result.h"

namespace lockstep::tools {

/// `lockstep bench xla`: training steps that XLA compiles. Each measurement is a process of its own, because a
/// plugin's cores and devices are fixed when it is loaded.
void add_xla(CLI::App& bench);

/// Makes all measurements with their defaults. Throws c10::ValueError where there is no plugin. The caller must not
/// have started threads.
void report_xla(ResultStyle style);

}  // namespace lockstep::tools
