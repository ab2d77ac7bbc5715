#pragma once

#include <CLI/CLI.hpp>

#include "tools/report.h"

namespace lockstep::tools {

/// `lockstep bench xla`: training steps that XLA compiles. Each measurement is a process of its own, because cores and
/// devices are given to a plugin once.
void add_xla(CLI::App& bench);

/// All of its measurements with their defaults. c10::ValueError where there is no plugin. The caller must not have
/// started threads.
void report_xla(ReportStyle style);

}  // namespace lockstep::tools
