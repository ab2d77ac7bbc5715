#include "lockstep/xla/graph/origin.h"

namespace lockstep::xla {

const char*& current_origin() {
  thread_local const char* origin = nullptr;
  return origin;
}

const char* traced_function() { return current_origin() != nullptr ? current_origin() : "xla"; }

}  // namespace lockstep::xla
