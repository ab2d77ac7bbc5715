#include "tools/report.h"

#include <iostream>
#include <string>

namespace lockstep::tools {

void report(const Json& result, ReportStyle style) {
  if (style == ReportStyle::Json) {
    std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    return;
  }
  const char* separator = "";
  for (const auto& [key, value] : result.items()) {
    std::cout << separator << key << ' ' << (value.is_string() ? value.get<std::string>() : value.dump());
    separator = ", ";
  }
  std::cout << std::endl;
}

}  // namespace lockstep::tools
