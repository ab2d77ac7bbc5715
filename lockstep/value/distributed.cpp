#include "lockstep/value/distributed.h"

namespace lockstep::detail {

void fail_outside_replica(const char* type, size_t num_components) {
  LOCKSTEP_THROW(c10::ValueError, "[", type,
                 "] a value that differs between replicas can be used as one value only inside a replica: ",
                 "components=", num_components,
                 "; pass it to `run` as an argument, or combine it with `reduce`, `gather` or `local_results`");
}

void fail_component_index(const char* type, int64_t index, size_t num_components) {
  LOCKSTEP_THROW(c10::IndexError, "[", type,
                 "] the replica must be one that the value has a component for: replica=", index,
                 ", components=", num_components);
}

}  // namespace lockstep::detail
