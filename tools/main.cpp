// The `lockstep` command: every subcommand lives in its own file and adds itself in add_subcommands.

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include "lockstep/version.h"
#include "tools/command/command_tree.h"
#include "tools/subcommands.h"

namespace {

/// Removes the program of `lockstep run`, all after `--`, from the command line and returns it.
std::vector<std::string> take_program(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return {};
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  argc = static_cast<int>(dashes - argv);
  return {dashes == end ? end : dashes + 1, end};
}

void add_subcommands(CLI::App& app, const std::vector<std::string>& program) {
  lockstep::tools::add_train(app);
  lockstep::tools::add_eval(app);
  lockstep::tools::add_predict(app);
  lockstep::tools::add_export(app);
  lockstep::tools::add_bench(app);
  lockstep::tools::add_checkpoint(app);
  lockstep::tools::add_data(app);
  lockstep::tools::add_doctor(app);
  lockstep::tools::add_estimate(app);
  lockstep::tools::add_report(app);
  lockstep::tools::add_run(app, program);
  lockstep::tools::add_runs(app);
  lockstep::tools::add_trace(app);
  lockstep::tools::add_completion(app);
  lockstep::tools::add_man(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("lockstep: one training step on any number of devices", "lockstep");
  app.set_version_flag("--version", std::string(lockstep::version()));
  app.require_subcommand(1);
  try {
    add_subcommands(app, take_program(argc, argv));
    lockstep::tools::check_words(lockstep::tools::command_tree(app), {argv + 1, argv + argc});
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {
    return app.exit(error);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
