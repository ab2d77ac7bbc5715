#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/topology_message.h"

namespace lockstep::tpu {
namespace {

[[noreturn]] void refuse() {
  throw c10::NotImplementedError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      "[Topology] lockstep was built without protozero; install libprotozero-dev and build again");
}

}  // namespace

TopologyMessage read_topology_message(std::string_view) { refuse(); }
std::string write_topology_message(const TopologyMessage&) { refuse(); }

}  // namespace lockstep::tpu
