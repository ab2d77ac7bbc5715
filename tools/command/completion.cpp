#include <sstream>

#include "lockstep/base/error.h"
#include "tools/command/command_tree.h"

namespace lockstep::tools {
namespace {

using Visitor = void (*)(std::ostream& out, const CommandNode& node);

void for_each_command(std::ostream& out, const CommandNode& node, Visitor visit) {
  visit(out, node);
  for (const CommandNode& child : node.children) for_each_command(out, child, visit);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// A text inside single quotes of a shell; `also` is escaped by a backslash.
std::string quoted(const std::string& text, char also = '\0') {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else if (also != '\0' && c == also) {
      result += std::string("\\") + c;
    } else {
      result += c;
    }
  }
  return "'" + result + "'";
}

/// " train", " data inspect": what the scripts compare the words before the cursor with.
std::string spaced(const CommandNode& node) { return node.path.empty() ? "" : " " + node.path; }

void add_path_case(std::ostream& out, const CommandNode& node) {
  if (!node.path.empty()) out << "      \"" << spaced(node) << "\") place=\"" << spaced(node) << "\" ;;\n";
}

template <class Print>
void add_value_cases(std::ostream& out, const CommandNode& node, Print print) {
  for (const CommandOption& option : node.options) {
    if (option.is_positional || option.choices.empty()) continue;
    for (const std::string& name : option.names) {
      out << "    \"" << spaced(node) << " " << name << "\") " << print(option) << "; return ;;\n";
    }
  }
}

void add_bash_values(std::ostream& out, const CommandNode& node) {
  add_value_cases(out, node, [](const CommandOption& option) {
    return "mapfile -t COMPREPLY < <(compgen -W \"" + joined(option.choices) + "\" -- \"$word\")";
  });
}

std::string words_of(const CommandNode& node) {
  std::string words = joined(node.child_names());
  for (const CommandOption& option : node.options) {
    if (option.is_positional) words += " " + joined(option.choices);
  }
  return words + " " + joined(node.flags());
}

void add_bash_words(std::ostream& out, const CommandNode& node) {
  out << "    \"" << spaced(node) << "\") words=\"" << words_of(node) << "\" ;;\n";
}

std::string bash_script(const CommandNode& command) {
  std::ostringstream out;
  out << "# Completion of `" << command.name << "` for bash: source it, or put it into\n"
      << "# ~/.local/share/bash-completion/completions/" << command.name << ".\n_" << command.name << "() {\n"
      << "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} place=\"\" words=\"\" i\n"
      << "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case \"$place ${COMP_WORDS[i]}\" in\n";
  for_each_command(out, command, add_path_case);
  out << "    esac\n  done\n  case \"$place $before\" in\n";
  for_each_command(out, command, add_bash_values);
  out << "  esac\n  case $place in\n";
  for_each_command(out, command, add_bash_words);
  out << "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\ncomplete -o default -F _"
      << command.name << " " << command.name << "\n";
  return out.str();
}

void add_zsh_values(std::ostream& out, const CommandNode& node) {
  add_value_cases(out, node, [](const CommandOption& option) { return "compadd -- " + joined(option.choices); });
}

void add_zsh_words(std::ostream& out, const CommandNode& node) {
  out << "    \"" << spaced(node) << "\")\n      described=(";
  for (const CommandNode& child : node.children) {
    out << "\n        " << quoted(child.name + ":" + child.description);
  }
  for (const CommandOption& option : node.options) {
    for (const std::string& name : option.names) {
      if (!option.is_positional) out << "\n        " << quoted(name + ":" + option.description);
    }
    for (const std::string& choice : option.choices) {
      if (option.is_positional) out << "\n        " << quoted(choice);
    }
  }
  out << ") ;;\n";
}

std::string zsh_script(const CommandNode& command) {
  std::ostringstream out;
  out << "#compdef " << command.name << "\n# Put it into a folder of $fpath under the name _" << command.name << ".\n_"
      << command.name << "() {\n  local place=\"\" i\n  local -a described\n"
      << "  for ((i = 2; i < CURRENT; i++)); do\n    case \"$place ${words[i]}\" in\n";
  for_each_command(out, command, add_path_case);
  out << "    esac\n  done\n  case \"$place ${words[CURRENT-1]}\" in\n";
  for_each_command(out, command, add_zsh_values);
  out << "  esac\n  case $place in\n";
  for_each_command(out, command, add_zsh_words);
  out << "  esac\n  _describe '" << command.name << "' described\n  _files\n}\n_" << command.name << " \"$@\"\n";
  return out.str();
}

void add_fish_lines(std::ostream& out, const CommandNode& node) {
  const std::string line = "complete -c lockstep -n " + quoted("__lockstep_at " + quoted(node.path));
  for (const CommandNode& child : node.children) {
    out << line << " -f -a " << child.name << " -d " << quoted(child.description, '\\') << "\n";
  }
  for (const CommandOption& option : node.options) {
    const std::string choices = option.choices.empty() ? "" : " -xa " + quoted(joined(option.choices));
    if (option.is_positional) {
      if (!choices.empty()) out << line << choices << "\n";
      continue;
    }
    out << line;
    for (const std::string& name : option.names) {
      out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
    }
    out << (option.value.empty() ? ""
            : choices.empty()    ? " -r"
                                 : choices)
        << " -d " << quoted(option.description, '\\') << "\n";
  }
}

void add_fish_case(std::ostream& out, const CommandNode& node) {
  if (!node.path.empty())
    out << "      case " << quoted(node.path) << "\n        set place " << quoted(node.path) << "\n";
}

std::string fish_script(const CommandNode& command) {
  std::ostringstream out;
  out << "# Completion of `" << command.name << "` for fish: put it into ~/.config/fish/completions/" << command.name
      << ".fish.\nfunction __lockstep_at\n  set -l place ''\n"
      << "  for word in (commandline -opc)[2..-1]\n    switch (string trim \"$place $word\")\n";
  for_each_command(out, command, add_fish_case);
  out << "    end\n  end\n  test \"$place\" = \"$argv[1]\"\nend\n";
  for_each_command(out, command, add_fish_lines);
  return out.str();
}

}  // namespace

std::string completion_script(const CommandNode& command, const std::string& shell) {
  if (shell == "bash") return bash_script(command);
  if (shell == "zsh") return zsh_script(command);
  LOCKSTEP_CHECK_VALUE(shell == "fish", "[completion] the shell must be bash, zsh or fish: shell=", shell);
  return fish_script(command);
}

}  // namespace lockstep::tools
