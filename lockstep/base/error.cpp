#include "lockstep/base/error.h"

#include <cstdlib>
#include <string_view>

namespace lockstep::detail {
namespace {

// The getters of env.h throw errors themselves, so they cannot be used here.
bool is_switched_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace

bool wants_backtrace() { return is_switched_on("LOCKSTEP_BACKTRACE") || is_switched_on("TORCH_SHOW_CPP_STACKTRACES"); }

}  // namespace lockstep::detail
