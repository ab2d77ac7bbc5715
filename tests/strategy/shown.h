#pragma once

#include <sstream>
#include <string>

namespace lockstep::tests {

/// Returns what `value` prints, as TensorFlow's pages show it.
template <class T>
std::string shown(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace lockstep::tests
