#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

/// The subcommands of `lockstep`: each function adds one to the command line, and its callback does the work.
///
/// Every subcommand that has results has `--json`: one JSON object per result line on standard output, and nothing else
/// there. (That of `run` goes to standard error, because its standard output is the workers'.)
namespace lockstep::tools {

/// `lockstep doctor`: devices and libraries of this machine and how lockstep uses them. `lockstep doctor JOB`: what
/// each worker of a running job does. `lockstep doctor FILE...`: the rank of a job that is out of step, from the
/// recordings of its workers.
void add_doctor(CLI::App& app);

/// `lockstep estimate`: the memory that a training takes, from a few steps of its model.
void add_estimate(CLI::App& app);

/// `lockstep bench WHAT`: measurements against the limits of this machine.
void add_bench(CLI::App& app);

/// `lockstep checkpoint inspect|verify|diff|convert`: what is in checkpoints, whether they are whole, where two differ.
void add_checkpoint(CLI::App& app);

/// `lockstep data inspect|write`: inspects data files, writes record files.
void add_data(CLI::App& app);

/// `lockstep report FOLDER...`: one HTML file about runs.
void add_report(CLI::App& app);

/// `lockstep run -n N -- PROGRAM`: starts several workers of a program on this machine and supervises them. `program`
/// is the command line after `--`, which the parser does not see.
void add_run(CLI::App& app, const std::vector<std::string>& program);

/// `lockstep runs list|show|compare FOLDER...`: the folders that `callbacks::run_folder` writes.
void add_runs(CLI::App& app);

/// `lockstep trace FOLDER -o FILE`: merges the traces of all workers into one file.
void add_trace(CLI::App& app);

/// `lockstep train`, `eval`, `predict`, `export`: trainings without a program, and what is done with their models.
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_predict(CLI::App& app);
void add_export(CLI::App& app);

/// `lockstep completion bash|zsh|fish`, `lockstep man`: made of the definitions of all subcommands.
void add_completion(CLI::App& app);
void add_man(CLI::App& app);

}  // namespace lockstep::tools
