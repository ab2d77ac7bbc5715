#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/tpu/mesh.h"

/// TensorFlow's TopologyProto. Where the library is built without protozero, no_topology_message.cpp throws.
namespace lockstep::tpu {

struct TopologyMessage {
  std::vector<int> mesh_shape{};
  /// `[task][device]`.
  std::vector<std::vector<MeshCoordinates>> device_coordinates{};
};

/// Reads a message. Throws `DataError` for damaged bytes, and `c10::ValueError` where counts are negative, larger than
/// any slice's or do not fit the number of coordinates, or a coordinate is negative. The mesh is not checked.
TopologyMessage read_topology_message(std::string_view bytes);

/// Writes a message in canonical form: fields in order, without zero and empty ones.
std::string write_topology_message(const TopologyMessage& message);

}  // namespace lockstep::tpu
