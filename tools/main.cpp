// The `lockstep` command: every subcommand lives in its own file and adds itself in add_subcommands.

#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include "lockstep/version.h"
#include "tools/subcommands.h"

namespace {

void add_subcommands(CLI::App& app) {
  lockstep::tools::add_bench(app);
  lockstep::tools::add_data(app);
  lockstep::tools::add_doctor(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("lockstep: one training step on any number of devices", "lockstep");
  app.set_version_flag("--version", std::string(lockstep::version()));
  app.require_subcommand(1);
  try {
    add_subcommands(app);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
