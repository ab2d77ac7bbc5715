#include <cstdlib>
#include <string_view>
#include <vector>

#include "lockstep/cluster/tpu/topology.h"
#include "tests/fuzz/fuzz_input.h"

// A topology as another program may send it.
namespace {

using lockstep::tpu::Topology;

/// What was understood can be asked for, and comes out again.
void look_at(const Topology& topology, std::string_view bytes) {
  for (const auto& task : topology.device_coordinates()) {
    for (const auto& place : task) {
      if (!topology.task_ordinal_at_coordinates(place)) std::abort();
    }
  }
  if (topology.serialized() != bytes) std::abort();
  const Topology written(std::vector<int>(topology.mesh_shape().begin(), topology.mesh_shape().end()),
                         topology.device_coordinates());
  if (Topology::from_serialized(written.serialized()) != topology) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = lockstep::data::fuzz::to_bytes(data, size);
  lockstep::data::fuzz::refuse_or_read([&] {
    try {
      look_at(Topology::from_serialized(bytes.view()), bytes.view());
    } catch (const c10::ValueError&) {
    } catch (const c10::IndexError&) {
    }
  });
  return 0;
}
