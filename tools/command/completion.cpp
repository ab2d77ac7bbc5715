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

std::string joined(const std::vector<std::string>& words, const char* separator = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
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

/// The words that a value may be, or may be among others.
std::string known_values(const CommandOption& option) {
  return joined(option.choices.empty() ? option.suggestions : option.choices);
}

/// What may follow in place of a flag: subcommands, and the words of arguments.
std::string names_of(const CommandNode& node) {
  std::vector<std::string> names = node.child_names();
  for (const CommandOption& option : node.options) {
    if (option.is_positional && !option.choices.empty()) names.push_back(known_values(option));
  }
  return joined(names);
}

bool takes_path(const CommandNode& node) {
  for (const CommandOption& option : node.options) {
    if (option.is_positional && option.takes_path()) return true;
  }
  return false;
}

/// " train", " data inspect": what the scripts compare the words before the cursor with.
std::string spaced(const CommandNode& node) { return node.path.empty() ? "" : " " + node.path; }

void add_path_case(std::ostream& out, const CommandNode& node) {
  if (!node.path.empty()) out << "      \"" << spaced(node) << "\") place=\"" << spaced(node) << "\" ;;\n";
}

/// For bash and zsh: sets `names`, `files` and `list` for the value of each flag.
void add_value_cases(std::ostream& out, const CommandNode& node) {
  for (const CommandOption& option : node.options) {
    if (option.is_positional || !option.takes_value()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back("\"" + spaced(node) + " " + name + "\"");
    out << "    " << joined(patterns, " | ") << ") value=1";
    if (const std::string names = known_values(option); !names.empty()) out << " names=" << quoted(names);
    out << (option.takes_path() ? " files=1" : "") << (option.is_list ? " list=1" : "") << " ;;\n";
  }
}

void add_bash_words(std::ostream& out, const CommandNode& node) {
  const std::string names = names_of(node);
  const bool has_path = takes_path(node);
  out << "      \"" << spaced(node) << "\") flags=" << quoted(joined(node.flags()))
      << " names=" << (names.empty() && !has_path ? "$flags" : quoted(names)) << (has_path ? " files=1" : "")
      << " ;;\n";
}

constexpr const char* kBashBegin = R"(() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local place="" flags="" names="" files="" list="" value="" prefix="" i
  # Readline may make "=" a word of its own.
  if [[ $word == "=" ]]; then
    word=""
  elif [[ $before == "=" ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $word == --*=* ]]; then
    before=${word%%=*} prefix=${word%%=*}= word=${word#*=}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then # a program and its arguments
      if ((i + 1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
      elif declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      fi
      compopt -o filenames 2>/dev/null
      return
    fi
    case "$place ${COMP_WORDS[i]}" in
)";

constexpr const char* kBashEnd = R"(    esac
    [[ $word == -* ]] && names=$flags files=""
  fi
  if [[ -n $list && $word == *,* ]]; then
    prefix+=${word%,*}, word=${word##*,}
  fi
  mapfile -t COMPREPLY < <(
    [[ -z $names ]] || compgen -P "$prefix" -W "$names" -- "$word"
    [[ -z $files ]] || compgen -P "$prefix" -f -- "$word"
  )
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
  else
    compopt +o default 2>/dev/null
  fi
}
)";

std::string bash_script(const CommandNode& command) {
  std::ostringstream out;
  out << "# Completion of `" << command.name << "` for bash: source it, or put it into\n"
      << "# ~/.local/share/bash-completion/completions/" << command.name << ".\n_" << command.name << kBashBegin;
  for_each_command(out, command, add_path_case);
  out << "    esac\n  done\n  case \"$place $before\" in\n";
  for_each_command(out, command, add_value_cases);
  out << "  esac\n  if [[ -z $value ]]; then\n    case $place in\n";
  for_each_command(out, command, add_bash_words);
  out << kBashEnd << "complete -o default -F _" << command.name << " " << command.name << "\n";
  return out.str();
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
  out << ")" << (takes_path(node) ? " files=1" : "") << " ;;\n";
}

constexpr const char* kZshBegin = R"(() {
  local place="" before=${words[CURRENT-1]} value="" names="" files="" list="" i
  local -a described
  for ((i = 2; i < CURRENT; i++)); do
    if [[ ${words[i]} == -- ]]; then # a program and its arguments
      shift $i words
      ((CURRENT -= i))
      _normal
      return
    fi
    case "$place ${words[i]}" in
)";

constexpr const char* kZshValues = R"(  esac
  if [[ -n $value ]]; then
    [[ -n $list ]] && compset -P '*,'
    [[ -n $names ]] && compadd -- ${=names}
    [[ -n $files ]] && _files
    return
  fi
  case $place in
)";

std::string zsh_script(const CommandNode& command) {
  std::ostringstream out;
  out << "#compdef " << command.name << "\n# Put it into a folder of $fpath under the name _" << command.name << ".\n_"
      << command.name << kZshBegin;
  for_each_command(out, command, add_path_case);
  out << "    esac\n  done\n  if [[ $PREFIX == --*=* ]]; then\n    before=${PREFIX%%=*}\n    compset -P 1 '*='\n  fi\n"
      << "  case \"$place $before\" in\n";
  for_each_command(out, command, add_value_cases);
  out << kZshValues;
  for_each_command(out, command, add_zsh_words);
  out << "  esac\n  _describe '" << command.name << "' described\n  [[ -n $files ]] && _files\n}\n_" << command.name
      << " \"$@\"\n";
  return out.str();
}

std::string fish_value(const CommandOption& option) {
  if (!option.takes_value()) return "";
  const std::string names = known_values(option);
  std::string text = option.takes_path() ? " -r -F" : " -x";
  if (!names.empty()) text += " -a " + quoted(option.is_list ? "(__lockstep_list " + names + ")" : names);
  return text;
}

void add_fish_lines(std::ostream& out, const CommandNode& node) {
  const std::string line = "complete -c lockstep -n " + quoted("__lockstep_at " + quoted(node.path));
  if (!takes_path(node)) out << line << " -f\n";
  for (const CommandNode& child : node.children) {
    out << line << " -a " << child.name << " -d " << quoted(child.description, '\\') << "\n";
  }
  for (const CommandOption& option : node.options) {
    if (option.is_positional) {
      if (!option.choices.empty()) out << line << " -a " << quoted(joined(option.choices)) << "\n";
      continue;
    }
    out << line;
    for (const std::string& name : option.names) {
      out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
    }
    out << fish_value(option) << " -d " << quoted(option.description, '\\') << "\n";
  }
}

void add_fish_case(std::ostream& out, const CommandNode& node) {
  if (!node.path.empty())
    out << "      case " << quoted(node.path) << "\n        set place " << quoted(node.path) << "\n";
}

constexpr const char* kFishBegin = R"(function __lockstep_list
  set -l word (commandline -ct)
  set -l begun (string match -r '.*,' -- (string replace -r '^--[^=]*=' '' -- "$word"))
  for value in $argv
    echo "$begun$value"
  end
end
function __lockstep_program
  set -l words (commandline -opc)
  set -l dashes (contains -i -- -- $words); or return 1
  set -l program
  if test $dashes -lt (count $words)
    set program (string escape -- $words[(math $dashes + 1)..-1])
  end
  set -l word (commandline -ct)
  complete -C (string join ' ' -- $program "$word")
end
function __lockstep_at
  set -l place ''
  for word in (commandline -opc)[2..-1]
    test "$word" = --; and return 1
    switch (string trim "$place $word")
)";

std::string fish_script(const CommandNode& command) {
  std::ostringstream out;
  out << "# Completion of `" << command.name << "` for fish: put it into ~/.config/fish/completions/" << command.name
      << ".fish.\n"
      << kFishBegin;
  for_each_command(out, command, add_fish_case);
  out << "    end\n  end\n  test \"$place\" = \"$argv[1]\"\nend\n"
      << "complete -c lockstep -n 'contains -- -- (commandline -opc)' -a '(__lockstep_program)'\n";
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
