#pragma once

#include <memory>

#include <CLI/CLI.hpp>

/// The subcommands of `lockstep`: each function adds one to the command line, and its callback does the work.
///
/// Every subcommand has `--json`: one JSON object per result line on standard output, and nothing else there.
namespace lockstep::tools {

/// `lockstep doctor`: what this machine offers and how lockstep will use it.
void add_doctor(CLI::App& app);

/// `lockstep bench WHAT`: measurements against the limits of this machine.
void add_bench(CLI::App& app);

/// `lockstep data inspect|write`: looks into data files, writes record files.
void add_data(CLI::App& app);

}  // namespace lockstep::tools
