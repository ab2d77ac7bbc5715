#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "lockstep/version.h"
#include "tools/command/command_tree.h"
#include "tools/subcommands.h"

namespace lockstep::tools {

void add_completion(CLI::App& app) {
  auto* command = app.add_subcommand("completion", "Print the script that completes the command in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &app] { std::cout << completion_script(command_tree(app), *shell); });
}

void add_man(CLI::App& app) {
  auto* command = app.add_subcommand("man", "Print the manual page");
  command->callback(
      [&app] { std::cout << manual_page(command_tree(app), std::string(version()), LOCKSTEP_BUILD_DATE); });
}

}  // namespace lockstep::tools
