#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

/// The subcommands of `lockstep`: each function adds one to the command line, and its callback does the work.
///
/// Every subcommand has `--json`: one JSON object per result line on standard output, and nothing else there. (That of
/// `run` goes to standard error, because its standard output is the workers'.)
namespace lockstep::tools {

/// `lockstep doctor`: what this machine offers and how lockstep will use it. `lockstep doctor FILE...`: which rank of a
/// job is out of step, from what its workers have recorded.
void add_doctor(CLI::App& app);

/// `lockstep bench WHAT`: measurements against the limits of this machine.
void add_bench(CLI::App& app);

/// `lockstep data inspect|write`: looks into data files, writes record files.
void add_data(CLI::App& app);

/// `lockstep run -n N -- PROGRAM`: starts several workers of a program on this machine and looks after them. `program`
/// is what stands behind `--`: the parser never sees it, since it would take words for its own.
void add_run(CLI::App& app, const std::vector<std::string>& program);

}  // namespace lockstep::tools
