#include "lockstep/base/host_name.h"

#include <array>
#include <unistd.h>

namespace lockstep {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace lockstep
