#include "lockstep/cluster/tpu/topology_message.h"

#include <cstdint>
#include <limits>

#define PROTOZERO_USE_VIEW std::string_view
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "lockstep/base/error.h"

namespace lockstep::tpu {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// The fields of tensorflow/core/protobuf/tpu/topology.proto. The fifth, what the hardware can do, is passed over.
constexpr uint32_t kMeshShape = 1;
constexpr uint32_t kNumTasks = 2;
constexpr uint32_t kNumDevicesPerTask = 3;
constexpr uint32_t kDeviceCoordinates = 4;

/// The fields as they stand in the bytes.
struct Fields {
  std::vector<int> mesh_shape;
  int num_tasks = 0;
  int num_devices_per_task = 0;
  std::vector<int> coordinates;
};

int checked_number(int64_t value) {
  LOCKSTEP_CHECK_VALUE(value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max(),
                       "[Topology] a number must fit 32 bits: number=", value);
  return static_cast<int>(value);
}

int number_of(pbf_reader& reader) { return checked_number(reader.get_int64()); }

/// Adds a list, or one entry of it where it is not packed.
void append(pbf_reader& reader, const char* name, size_t limit, std::vector<int>& numbers) {
  const auto add = [&](int64_t value) {
    LOCKSTEP_CHECK_VALUE(numbers.size() < limit, "[Topology] a list is too long: ", name, " has more than ", limit,
                         " entries");
    numbers.push_back(checked_number(value));
  };
  if (reader.wire_type() == pbf_wire_type::varint) {
    add(reader.get_int64());
    return;
  }
  for (const int64_t value : reader.get_packed_int64()) add(value);
}

bool is_number(const pbf_reader& reader) { return reader.wire_type() == pbf_wire_type::varint; }

bool is_list(const pbf_reader& reader) {
  return is_number(reader) || reader.wire_type() == pbf_wire_type::length_delimited;
}

Fields read_fields(std::string_view bytes) {
  Fields fields;
  pbf_reader reader(bytes);
  while (reader.next()) {
    if (reader.tag() == kMeshShape && is_list(reader)) {
      append(reader, "mesh_shape", kMeshRank, fields.mesh_shape);
    } else if (reader.tag() == kNumTasks && is_number(reader)) {
      fields.num_tasks = number_of(reader);
    } else if (reader.tag() == kNumDevicesPerTask && is_number(reader)) {
      fields.num_devices_per_task = number_of(reader);
    } else if (reader.tag() == kDeviceCoordinates && is_list(reader)) {
      append(reader, "device_coordinates", kMeshRank * kMaxMeshCores, fields.coordinates);
    } else {
      reader.skip();
    }
  }
  return fields;
}

void check_count(const char* name, int count) {
  LOCKSTEP_CHECK_VALUE(count >= 0 && count <= kMaxMeshCores, "[Topology] ", name, " must be from 0 to ", kMaxMeshCores,
                       ": ", name, "=", count);
}

void check_coordinates(const Fields& fields) {
  check_count("num_tasks", fields.num_tasks);
  check_count("num_tpu_devices_per_task", fields.num_devices_per_task);
  LOCKSTEP_CHECK_VALUE(fields.num_tasks == 0 || fields.num_devices_per_task > 0,
                       "[Topology] every task must have a device: num_tasks=", fields.num_tasks,
                       ", num_tpu_devices_per_task=0");
  const auto expected = int64_t{fields.num_tasks} * fields.num_devices_per_task * static_cast<int64_t>(kMeshRank);
  LOCKSTEP_CHECK_VALUE(
      static_cast<int64_t>(fields.coordinates.size()) == expected,
      "[Topology] device_coordinates must have four entries for each device: entries=", fields.coordinates.size(),
      ", num_tasks=", fields.num_tasks, ", num_tpu_devices_per_task=", fields.num_devices_per_task);
  for (const int coordinate : fields.coordinates) {
    LOCKSTEP_CHECK_VALUE(coordinate >= 0, "[Topology] coordinates must be at least 0: coordinate=", coordinate);
  }
}

}  // namespace

TopologyMessage read_topology_message(std::string_view bytes) {
  Fields fields;
  try {
    fields = read_fields(bytes);
  } catch (const protozero::exception& error) {
    LOCKSTEP_THROW(DataError, "[Topology] the bytes must be a sound TopologyProto: bytes=", bytes.size(), " (",
                   error.what(), ")");
  }
  check_coordinates(fields);
  TopologyMessage message{std::move(fields.mesh_shape), {}};
  auto next = fields.coordinates.begin();
  for (int task = 0; task < fields.num_tasks; ++task) {
    auto& devices = message.device_coordinates.emplace_back(fields.num_devices_per_task);
    for (MeshCoordinates& place : devices) {
      for (int& coordinate : place) coordinate = *next++;
    }
  }
  return message;
}

std::string write_topology_message(const TopologyMessage& message) {
  std::vector<int> coordinates;
  for (const auto& task : message.device_coordinates) {
    for (const MeshCoordinates& place : task) coordinates.insert(coordinates.end(), place.begin(), place.end());
  }
  const auto num_tasks = static_cast<int>(message.device_coordinates.size());
  const auto num_devices = num_tasks == 0 ? 0 : static_cast<int>(message.device_coordinates.front().size());
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  writer.add_packed_int32(kMeshShape, message.mesh_shape.begin(), message.mesh_shape.end());
  if (num_tasks > 0) writer.add_int32(kNumTasks, num_tasks);
  if (num_devices > 0) writer.add_int32(kNumDevicesPerTask, num_devices);
  writer.add_packed_int32(kDeviceCoordinates, coordinates.begin(), coordinates.end());
  return bytes;
}

}  // namespace lockstep::tpu
