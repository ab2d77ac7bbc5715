#include "lockstep/base/error.h"

#include <cstdlib>
#include <string_view>

namespace lockstep {
namespace {

// The getters of env.h throw errors themselves, so they cannot be used here.
bool is_switched_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace

std::string error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& known) {
    return known.what_without_backtrace();
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

bool detail::wants_backtrace() {
  return is_switched_on("LOCKSTEP_BACKTRACE") || is_switched_on("TORCH_SHOW_CPP_STACKTRACES");
}

}  // namespace lockstep
