#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// The definitions of all subcommands as plain values: what completion, the manual page and the check of flags are
/// made of, so that none of them can differ from what the parser accepts.
namespace lockstep::tools {

struct CommandOption {
  /// "-n" and "--workers", or the name of an argument without flag: "FILE".
  std::vector<std::string> names;
  std::string description;
  /// "INT", "TEXT"; empty for a flag.
  std::string value;
  /// The words that are allowed; empty: any.
  std::vector<std::string> choices;
  std::string default_value;
  bool is_positional = false;
};

struct CommandNode {
  std::string name;
  /// The words that lead to it: "data inspect"; empty for the command itself.
  std::string path;
  std::string description;
  std::vector<CommandOption> options;
  std::vector<CommandNode> children;

  /// All flags of the command: "--json".
  std::vector<std::string> flags() const;
  std::vector<std::string> child_names() const;
};

CommandNode command_tree(const CLI::App& app);

/// Throws c10::ValueError for a subcommand or flag that does not exist, with the nearest one that does.
void check_words(const CommandNode& command, const std::vector<std::string>& words);

/// The script that completes the command in a shell: "bash", "zsh" or "fish".
std::string completion_script(const CommandNode& command, const std::string& shell);

/// The manual page, in the language of man pages.
std::string manual_page(const CommandNode& command, const std::string& version);

}  // namespace lockstep::tools
