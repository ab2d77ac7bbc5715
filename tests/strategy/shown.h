#pragma once

#include <sstream>
#include <string>

namespace lockstep::testing {

/// What `value` prints, as the pages of TensorFlow show it.
template <class T>
std::string shown(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace lockstep::testing
