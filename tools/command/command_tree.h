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
  /// "INT", "TEXT", "mlp|cnn|FILE"; empty for a flag.
  std::string value;
  /// The words that are allowed; empty: any.
  std::vector<std::string> choices;
  /// Where any word is allowed: those that are known, "mlp" and "cnn".
  std::vector<std::string> suggestions;
  std::string default_value;
  /// The heading of help: "Options".
  std::string group;
  bool is_positional = false;
  bool is_required = false;
  /// Whether a comma separates several values.
  bool is_list = false;

  bool takes_value() const { return !value.empty(); }
  /// Whether a value may be the name of a file or a folder.
  bool takes_path() const;
};

struct CommandNode {
  std::string name;
  /// The words that lead to it: "data inspect"; empty for the command itself.
  std::string path;
  std::string description;
  std::vector<CommandOption> options = {};
  std::vector<CommandNode> children = {};
  /// What help says below the flags: sentences, and lines of examples.
  std::string details = {};
  std::vector<std::string> examples = {};

  /// All flags of the command: "--json".
  std::vector<std::string> flags() const;
  std::vector<std::string> child_names() const;
  /// The option of a flag; null where there is none.
  const CommandOption* option_of(const std::string& flag) const;
};

CommandNode command_tree(const CLI::App& app);

/// Throws c10::ValueError for a subcommand or flag that does not exist, and for a value that is not one of the choices,
/// with the nearest one that is. A flag of several letters with one dash counts as one that does not exist.
void check_words(const CommandNode& command, const std::vector<std::string>& words);

/// The script that completes the command in a shell: "bash", "zsh" or "fish".
std::string completion_script(const CommandNode& command, const std::string& shell);

/// The manual page, in the language of man pages. `date` is that of the version: 2026-01-02.
std::string manual_page(const CommandNode& command, const std::string& version, const std::string& date);

}  // namespace lockstep::tools
