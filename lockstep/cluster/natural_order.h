#pragma once

#include <string_view>

namespace lockstep::detail {

/// Orders names as people do, numbers in them by value: "pod-2" before "pod-10".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace lockstep::detail
