#include <sstream>

#include "tools/command/command_tree.h"

namespace lockstep::tools {
namespace {

/// Hyphens stay what is typed, and a line that begins with a point is text.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '-' || c == '\\') result += '\\';
    if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
    result += c;
  }
  return result;
}

void add_option(std::ostream& out, const CommandOption& option) {
  out << ".TP\n";
  if (option.is_positional) {
    out << "\\fI" << roff(option.names[0]) << "\\fR";
  } else {
    for (size_t i = 0; i < option.names.size(); ++i) {
      out << (i > 0 ? ", " : "") << "\\fB" << roff(option.names[i]) << "\\fR";
    }
    if (!option.value.empty()) out << " \\fI" << roff(option.value) << "\\fR";
  }
  out << "\n" << roff(option.description);
  if (!option.choices.empty()) {
    out << "; one of ";
    for (size_t i = 0; i < option.choices.size(); ++i) out << (i > 0 ? ", " : "") << roff(option.choices[i]);
  }
  if (!option.default_value.empty() && option.default_value != "\"\"" && option.default_value != "[]") {
    out << " (default " << roff(option.default_value) << ")";
  }
  out << ".\n";
}

void add_command(std::ostream& out, const CommandNode& command, const CommandNode& node) {
  out << ".SS " << roff(command.name + (node.path.empty() ? "" : " " + node.path)) << "\n"
      << roff(node.description) << ".\n";
  for (const CommandOption& option : node.options) add_option(out, option);
  for (const CommandNode& child : node.children) add_command(out, command, child);
}

}  // namespace

std::string manual_page(const CommandNode& command, const std::string& version) {
  std::ostringstream out;
  out << ".TH LOCKSTEP 1 \"\" \"lockstep " << version << "\"\n.SH NAME\nlockstep \\- "
      << roff(command.description.substr(command.description.find(": ") + 2))
      << "\n.SH SYNOPSIS\n.B lockstep\n\\fISUBCOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
  for (const CommandOption& option : command.options) add_option(out, option);
  for (const CommandNode& child : command.children) add_command(out, command, child);
  out << ".SH EXIT STATUS\n0: success. 1: an error, which is on standard error. 75: SIGTERM ended a training, which "
         "can "
         "be continued. 130: an interrupt from the keyboard did.\n";
  return out.str();
}

}  // namespace lockstep::tools
