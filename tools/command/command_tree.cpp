#include "tools/command/command_tree.h"

#include <algorithm>
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

CommandOption option_of(const CLI::Option& option) {
  CommandOption result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  result.is_positional = result.names.empty();
  if (result.is_positional) result.names.push_back(option.get_name(true));
  result.description = option.get_description();
  const std::string type = option.get_type_name();
  result.choices = choices_of(type);
  if (option.get_expected_max() > 0 && option.get_type_size_max() > 0) result.value = type.substr(0, type.find(':'));
  result.default_value = option.get_default_str();
  return result;
}

std::string advice(const std::string& word, const std::vector<std::string>& known, const std::string& otherwise) {
  const std::string similar = did_you_mean(word, known);
  return similar.empty() ? "; " + otherwise : similar;
}

CommandNode node_of_app(const CLI::App& app, const std::string& path) {
  CommandNode node{app.get_name(), path, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) node.options.push_back(option_of(*option));
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    node.children.push_back(node_of_app(*child, path.empty() ? child->get_name() : path + " " + child->get_name()));
  }
  return node;
}

}  // namespace

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
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string place = node->path.empty() ? command.name : command.name + " " + node->path;
    if (word.size() > 2 && word.starts_with("--")) {
      const std::string flag = word.substr(0, word.find('='));
      const auto known = node->flags();
      LOCKSTEP_CHECK_VALUE(std::find(known.begin(), known.end(), flag) != known.end(), "[", place, "] ", flag,
                           " is unknown", advice(flag, known, "`" + place + " --help` lists all flags"));
    } else if (!node->children.empty()) {
      const auto child = std::find_if(node->children.begin(), node->children.end(),
                                      [&](const CommandNode& each) { return each.name == word; });
      LOCKSTEP_CHECK_VALUE(child != node->children.end() || word.starts_with("-"), "[", place, "] ", word,
                           " is no subcommand",
                           advice(word, node->child_names(), "there are " + enumeration(node->child_names())));
      if (child != node->children.end()) node = &*child;
    }
  }
}

}  // namespace lockstep::tools
