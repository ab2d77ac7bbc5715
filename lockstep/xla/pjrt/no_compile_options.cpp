#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/compile_options.h"

namespace lockstep::xla {

std::string compile_options(const std::vector<std::vector<int>>&, bool, bool, const CompilerOptions&) {
  LOCKSTEP_CHECK_IMPLEMENTED(
      false, "[xla compile] lockstep was built without protozero; install libprotozero-dev and build again");
}

}  // namespace lockstep::xla
