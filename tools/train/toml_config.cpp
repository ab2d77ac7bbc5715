#include <sstream>

#include <toml++/toml.h>

#include "lockstep/base/error.h"
#include "tools/train/settings.h"

namespace lockstep::tools {

Json read_toml(const std::string& path) {
  try {
    std::ostringstream text;
    text << toml::json_formatter(toml::parse_file(path));
    return Json::parse(text.str());
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    LOCKSTEP_THROW(DataError, "[train] the file is no TOML: file=\"", path, "\", line=", begin.line,
                   ", column=", begin.column, "; ", error.description());
  }
}

}  // namespace lockstep::tools
