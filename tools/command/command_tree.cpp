#include "tools/command/command_tree.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "tools/command/nearest.h"

namespace lockstep::tools {
namespace {

/// The words of "TEXT:{a,b,c}", as the check for members of a set describes itself.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return choices;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

/// The words in small letters of "mlp|cnn|FILE".
std::vector<std::string> suggestions_of(const std::string& type) {
  std::vector<std::string> names;
  std::istringstream words(type);
  for (std::string word; std::getline(words, word, '|');) {
    const bool is_name =
        !word.empty() && std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (is_name) names.push_back(word);
  }
  return names;
}

CommandOption command_option(const CLI::Option& option) {
  CommandOption result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  result.is_positional = result.names.empty();
  if (result.is_positional) result.names.push_back(option.get_name(true));
  result.description = option.get_description();
  const std::string type = option.get_type_name();
  result.choices = choices_of(type);
  if (option.get_expected_max() > 0 && option.get_type_size_max() > 0) {
    result.value = type.substr(0, type.find(':'));
    if (result.value.empty()) result.value = "TEXT";
    if (type.find('|') != std::string::npos) result.suggestions = suggestions_of(result.value);
  }
  result.default_value = option.get_default_str();
  result.group = option.get_group();
  result.is_required = option.get_required();
  result.is_list = option.get_delimiter() != '\0';
  return result;
}

std::string advice(const std::string& word, const std::vector<std::string>& known, const std::string& otherwise) {
  const std::string similar = did_you_mean(word, known);
  return similar.empty() ? "; " + otherwise : similar;
}

/// Sentences, and examples below "Examples:".
void add_footer(CommandNode& node, const std::string& footer) {
  std::istringstream lines(footer);
  bool is_example = false;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (line == "Examples:") {
      is_example = true;
    } else if (is_example && begin != std::string::npos) {
      node.examples.push_back(line.substr(begin));
    } else if (!is_example) {
      node.details += line + "\n";
    }
  }
}

CommandNode node_of_app(const CLI::App& app, const std::string& path) {
  CommandNode node{.name = app.get_name(), .path = path, .description = app.get_description()};
  for (const CLI::Option* option : app.get_options()) node.options.push_back(command_option(*option));
  add_footer(node, app.get_footer());
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    node.children.push_back(node_of_app(*child, path.empty() ? child->get_name() : path + " " + child->get_name()));
  }
  return node;
}

/// Negative numbers are values.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

/// The option of a flag. Null for a short flag with its value behind it, "-n2", and for several in one word.
const CommandOption* checked_flag(const CommandNode& node, const std::string& flag, const std::string& place) {
  const auto known = node.flags();
  if (const CommandOption* const option = node.option_of(flag)) return option;
  const std::string long_flag = flag.starts_with("--") ? flag : "-" + flag;
  const bool is_short = !flag.starts_with("--") && node.option_of(flag.substr(0, 2)) != nullptr;
  if (is_short && node.option_of(long_flag) == nullptr) return nullptr;
  LOCKSTEP_THROW(c10::ValueError, "[", place, "] ", flag, " is unknown",
                 advice(long_flag, known, "`" + place + " --help` lists all flags"));
}

void check_choice(const CommandOption& option, const std::string& name, const std::string& text,
                  const std::string& place) {
  if (option.choices.empty()) return;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, option.is_list ? ',' : '\n');) {
    LOCKSTEP_CHECK_VALUE(std::find(option.choices.begin(), option.choices.end(), word) != option.choices.end(), "[",
                         place, "] ", name, " must be ", enumeration(option.choices, "or"), ": value=", word,
                         did_you_mean(word, option.choices));
  }
}

/// The argument without flag at a place; null behind the last one.
const CommandOption* argument_of(const CommandNode& node, size_t place) {
  for (const CommandOption& option : node.options) {
    if (option.is_positional && place-- == 0) return &option;
  }
  return nullptr;
}

}  // namespace

bool CommandOption::takes_path() const {
  if (!takes_value() || !choices.empty()) return false;
  return value == "TEXT" || value.find("FILE") != std::string::npos || value.find("FOLDER") != std::string::npos;
}

const CommandOption* CommandNode::option_of(const std::string& flag) const {
  for (const CommandOption& option : options) {
    const auto& names = option.names;
    if (!option.is_positional && std::find(names.begin(), names.end(), flag) != names.end()) return &option;
  }
  return nullptr;
}

std::vector<std::string> CommandNode::flags() const {
  std::vector<std::string> result;
  for (const CommandOption& option : options) {
    if (!option.is_positional) result.insert(result.end(), option.names.begin(), option.names.end());
  }
  return result;
}

std::vector<std::string> CommandNode::child_names() const {
  std::vector<std::string> result;
  for (const CommandNode& child : children) result.push_back(child.name);
  return result;
}

CommandNode command_tree(const CLI::App& app) { return node_of_app(app, ""); }

void check_words(const CommandNode& command, const std::vector<std::string>& words) {
  const CommandNode* node = &command;
  size_t arguments = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string place = node->path.empty() ? command.name : command.name + " " + node->path;
    if (word == "--") return;
    if (is_flag(word)) {
      const size_t sign = word.find('=');
      const CommandOption* const option = checked_flag(*node, word.substr(0, sign), place);
      if (option == nullptr || !option->takes_value()) continue;
      if (sign != std::string::npos) {
        check_choice(*option, word.substr(0, sign), word.substr(sign + 1), place);
      } else if (i + 1 < words.size() && !words[i + 1].starts_with("--")) {
        check_choice(*option, word, words[++i], place);
      }
    } else if (!node->children.empty()) {
      const auto child = std::find_if(node->children.begin(), node->children.end(),
                                      [&](const CommandNode& each) { return each.name == word; });
      LOCKSTEP_CHECK_VALUE(child != node->children.end(), "[", place, "] ", word, " is no subcommand",
                           advice(word, node->child_names(), "there are " + enumeration(node->child_names())));
      node = &*child;
    } else if (const CommandOption* const argument = argument_of(*node, arguments++)) {
      check_choice(*argument, argument->names[0], word, place);
    }
  }
}

}  // namespace lockstep::tools
