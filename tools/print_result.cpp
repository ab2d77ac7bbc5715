#include "tools/print_result.h"

#include <iostream>
#include <string>

namespace lockstep::tools {

void print_result(const Json& result, ResultStyle style) {
  if (style == ResultStyle::Json) {
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
