#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/topology_message.h"

namespace lockstep::tpu {
namespace {

[[noreturn]] void throw_not_built() {
  LOCKSTEP_THROW(c10::NotImplementedError,
                 "[Topology] lockstep was built without protozero; install libprotozero-dev and build again");
}

}  // namespace

TopologyMessage read_topology_message(std::string_view) { throw_not_built(); }
std::string write_topology_message(const TopologyMessage&) { throw_not_built(); }

}  // namespace lockstep::tpu
