#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "tools/command/command_tree.h"

namespace lockstep::tools {
namespace {

/// Hyphens stay what is typed.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '-' || c == '\\') result += '\\';
    result += c == '\\' ? 'e' : c;
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

/// A line that begins with a point would be a request.
std::string line_of(const std::string& text) {
  return (text.starts_with('.') || text.starts_with('\'') ? "\\&" : "") + text + "\n";
}

/// Text in lines of at most 78 characters.
std::string paragraph(const std::string& text) {
  constexpr size_t kWidth = 78;
  std::istringstream words(text);
  std::string result;
  std::string line;
  for (std::string word; words >> word;) {
    word = roff(word);
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      result += line_of(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? result : result + line_of(line);
}

std::string sentence(const std::string& text) { return paragraph(text + (text.ends_with('.') ? "" : ".")); }

void add_option(std::ostream& out, const CommandOption& option) {
  out << ".TP\n";
  if (option.is_positional) {
    out << italic(option.names[0]);
  } else {
    for (size_t i = 0; i < option.names.size(); ++i) out << (i > 0 ? ", " : "") << bold(option.names[i]);
    if (option.takes_value()) out << " " << italic(option.value);
  }
  std::string text = option.description;
  for (size_t i = 0; i < option.choices.size(); ++i) text += (i > 0 ? ", " : "; one of ") + option.choices[i];
  if (!option.default_value.empty() && option.default_value != "\"\"" && option.default_value != "[]") {
    text += " (default " + option.default_value + ")";
  }
  out << "\n" << sentence(text);
}

/// The options by their headings, in the order in which these come.
void add_options(std::ostream& out, const CommandNode& node) {
  std::vector<std::string> groups;
  for (const CommandOption& option : node.options) {
    if (option.is_positional) add_option(out, option);
    if (!option.is_positional && std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  for (const std::string& group : groups) {
    if (groups.size() > 1) out << ".PP\n" << roff(group) << ":\n";
    for (const CommandOption& option : node.options) {
      if (!option.is_positional && option.group == group) add_option(out, option);
    }
  }
}

/// Lines that begin with a space are a line each.
void add_details(std::ostream& out, const std::string& details) {
  std::istringstream lines(details);
  std::string text;
  const auto flush = [&] {
    if (!text.empty()) out << ".PP\n" << paragraph(text);
    text.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with(' ')) flush();
    if (!line.empty()) text += line + " ";
  }
  flush();
}

void add_command(std::ostream& out, const CommandNode& command, const CommandNode& node) {
  out << ".SS " << roff(command.name + (node.path.empty() ? "" : " " + node.path)) << "\n"
      << sentence(node.description);
  add_options(out, node);
  add_details(out, node.details);
  for (const CommandNode& child : node.children) add_command(out, command, child);
}

/// A line for each command that has no subcommands, with what it requires.
void add_synopsis(std::ostream& out, const CommandNode& command, const CommandNode& node) {
  for (const CommandNode& child : node.children) add_synopsis(out, command, child);
  if (!node.children.empty()) return;
  out << ".SY \"" << roff(command.name + " " + node.path) << "\"\n[" << italic("OPTIONS") << "]\n";
  for (const CommandOption& option : node.options) {
    if (!option.is_required || option.is_positional) continue;
    out << bold(option.names[0]) << " " << italic(option.value) << "\n";
  }
  for (const CommandOption& option : node.options) {
    if (!option.is_positional) continue;
    out << (option.is_required ? "" : "[") << italic(option.names[0]) << (option.is_required ? "" : "]") << "\n";
  }
  // The parser does not see the program.
  if (node.path == "run") out << "\\-\\- " << italic("PROGRAM") << " [" << italic("ARGUMENTS") << "]\n";
  out << ".YS\n";
}

void add_environment(std::ostream& out) {
  out << ".SH ENVIRONMENT\n";
  for (const env::Variable& variable : env::variables()) {
    std::string text(variable.meaning);
    if (!variable.default_value.empty()) text += " Default: " + std::string(variable.default_value) + ".";
    out << ".TP\n" << bold(std::string(variable.name)) << "\n" << paragraph(text);
  }
}

void add_files(std::ostream& out) {
  constexpr const char* kFiles[][2]{
      {"plan.json", "In the folder of a run: the settings in which everything is decided, the form of the data."},
      {"run.json, metrics.jsonl, steps.jsonl", "How the run was made and how it went; `lockstep runs` reads them."},
      {"checkpoints/", "The newest checkpoints of the run."},
      {"model.safetensors", "The parameters at the end of the run."},
      {"model.pt", "The TorchScript file that the training began with."},
  };
  out << ".SH FILES\n";
  for (const auto& [name, text] : kFiles) out << ".TP\n" << italic(name) << "\n" << paragraph(text);
}

void add_examples(std::ostream& out, const CommandNode& node) {
  for (const std::string& example : node.examples) out << line_of(roff(example));
  for (const CommandNode& child : node.children) add_examples(out, child);
}

}  // namespace

std::string manual_page(const CommandNode& command, const std::string& version, const std::string& date) {
  std::ostringstream out;
  const std::string summary = command.description.substr(command.description.find(": ") + 2);
  out << ".TH LOCKSTEP 1 \"" << date << "\" \"lockstep " << version << "\" \"User Commands\"\n.SH NAME\nlockstep \\- "
      << roff(summary) << "\n.SH SYNOPSIS\n";
  add_synopsis(out, command, command);
  out << ".SH DESCRIPTION\n"
      << paragraph(
             "Trains models on one or several devices and machines, with the same numbers on all of them, and shows "
             "what trainings, data, checkpoints and machines are. The subcommands `train`, `eval`, `predict` and "
             "`export` need no program; the others help with programs that use the library lockstep.")
      << ".SH OPTIONS\n";
  add_options(out, command);
  for (const CommandNode& child : command.children) add_command(out, command, child);
  add_environment(out);
  add_files(out);
  out << ".SH EXAMPLES\n.EX\n";
  add_examples(out, command);
  out << ".EE\n.SH EXIT STATUS\n"
      << ".TP\n0\nSuccess.\n.TP\n1\n"
      << paragraph("An error, which is on standard error, or a check whose answer is no.")
      << ".TP\n75\nSIGTERM ended a training, which can be continued.\n"
      << ".TP\n130\nAn interrupt from the keyboard ended it.\n.PP\n"
      << paragraph("`lockstep run` ends with the status of the first worker that failed.")
      << ".SH SEE ALSO\n.BR mpirun (1),\n.BR tensorboard (1),\n.BR torchrun (1)\n.PP\n"
      << paragraph(
             "Each subcommand has `--help`. The guides are in the folder docs of the source, docs/command.md first.");
  return out.str();
}

}  // namespace lockstep::tools
