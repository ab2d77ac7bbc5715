#include "lockstep/cluster/tpu/topology.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/tpu/device_assignment.h"
#include "tests/golden/drivers.h"

namespace lockstep::golden::drivers::topology {
namespace {

using tpu::DeviceAssignment;
using tpu::DeviceOrderMode;
using tpu::MeshCoordinates;
using tpu::Topology;

std::vector<int> sizes_of(const Json& sizes) {
  if (sizes.is_null()) return {};
  std::vector<int> result;
  for (const Json& size : sizes) {
    if (!size.is_number_integer()) throw DoesNotCompile("a shape is a list of numbers");
    result.push_back(size);
  }
  return result;
}

MeshCoordinates place_of(const Json& place) {
  const std::vector<int> numbers = sizes_of(place);
  if (numbers.size() != tpu::kMeshRank) throw DoesNotCompile("a place has four coordinates");
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

/// Reads [task][device][axis] or [replica][core][axis].
std::vector<std::vector<MeshCoordinates>> places_of(const Json& lists) {
  std::vector<std::vector<MeshCoordinates>> result;
  for (const Json& list : lists) {
    auto& places = result.emplace_back();
    for (const Json& place : list) {
      if (!place.is_array()) throw DoesNotCompile("a place is a list of numbers");
      places.push_back(place_of(place));
    }
  }
  return result;
}

/// Devices as data/README.md numbers them, dealt to the tasks of a case.
Topology topology_of(const Case& c) {
  const std::vector<int> mesh = sizes_of(c.in.at("mesh"));
  const Json missing = c.in.value("missing", Json::array());
  const Topology whole = Topology::slice(mesh, {mesh.at(0), mesh.at(1), mesh.at(2)});
  std::vector<MeshCoordinates> devices = whole.device_coordinates().front();
  std::erase_if(devices, [&](const MeshCoordinates& place) {
    return std::count(missing.begin(), missing.end(), Json(place)) > 0;
  });
  if (c.text("order") == "reversed") std::reverse(devices.begin(), devices.end());
  const size_t num_tasks = c.in.at("tasks");
  const size_t per_task = devices.size() / num_tasks;
  std::vector<std::vector<MeshCoordinates>> tasks;
  for (size_t task = 0; task < num_tasks; ++task) {
    tasks.emplace_back(devices.begin() + static_cast<ptrdiff_t>(task * per_task),
                       devices.begin() + static_cast<ptrdiff_t>((task + 1) * per_task));
  }
  return Topology(mesh, std::move(tasks));
}

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    text += digits.data();
  }
  return text;
}

Json run_topology(const Case& c) {
  const Topology topology(sizes_of(c.in.at("mesh")), places_of(c.in.at("device_coordinates")));
  constexpr size_t kMaxLookups = 6;  // as many as the data has
  Json lookups = Json::array();
  for (const auto& task : topology.device_coordinates()) {
    for (const MeshCoordinates& place : task) {
      if (lookups.size() == kMaxLookups) break;
      lookups.push_back({{"at", place},
                         {"task", topology.task_ordinal_at_coordinates(place).value()},
                         {"device", topology.tpu_device_ordinal_at_coordinates(place).value()},
                         {"cpu", topology.cpu_device_name_at_coordinates(place)},
                         {"tpu", topology.tpu_device_name_at_coordinates(place)},
                         {"tpu_job", topology.tpu_device_name_at_coordinates(place, "w")}});
    }
  }
  const std::string bytes = topology.serialized();
  const bool is_recorded = !c.out.is_object() || !c.out.at("serialized_hex").is_null();  // only of small ones
  if (Topology::from_serialized(bytes) != topology) throw HarnessError("[topology] the bytes read as something else");
  return {{"mesh_shape", topology.mesh_shape()},
          {"rank", topology.mesh_rank()},
          {"tasks", topology.num_tasks()},
          {"per_task", topology.num_tpus_per_task()},
          {"missing", topology.missing_devices()},
          {"lookups", lookups},
          {"serialized_hex", is_recorded ? Json(hex_of(bytes)) : Json()}};
}

/// TensorFlow has -1 where lockstep has nothing.
Json run_lookup(const Case& c) {
  const Topology topology(sizes_of(c.in.at("mesh")), places_of(c.in.at("device_coordinates")));
  const MeshCoordinates at = place_of(c.in.at("at"));
  return {topology.task_ordinal_at_coordinates(at).value_or(-1),
          topology.tpu_device_ordinal_at_coordinates(at).value_or(-1)};
}

/// The replicas of logical core 0 on a task, or the error that says there are none.
Json replicas_on(const DeviceAssignment& assignment, int task) {
  const Outcome outcome =
      run_driver([&](const Case&) { return Outcome::of_value(assignment.lookup_replicas(task, 0)); }, Case());
  return outcome.kind == Outcome::Kind::Value ? outcome.value : Json{{"type", outcome.type}};
}

Json looked_up(const DeviceAssignment& assignment, const Json& expected) {
  Json lookups = Json::object();
  for (const auto& [task, answer] : expected.items()) {
    Json replicas = replicas_on(assignment, std::stoi(task));
    if (replicas.is_object() && answer.is_object()) replicas["message"] = answer.at("message");  // the words are ours
    lookups[task] = replicas;
  }
  return lookups;
}

/// TensorFlow was asked for the host of the last replica, which is an error where there is none.
Json answer_of(const DeviceAssignment& assignment, const Case& c) {
  const int last_replica = assignment.num_replicas() - 1;
  const int last_core = assignment.num_cores_per_replica() - 1;
  const std::string host = assignment.host_device(last_replica);
  Json answer{{"num_replicas", assignment.num_replicas()},
              {"cores_per_replica", assignment.num_cores_per_replica()},
              {"core_assignment", assignment.core_assignment()}};
  if (!c.out.contains("tpu_ordinal")) return answer;
  Json ordinals = Json::array();
  for (int replica = 0; replica <= last_replica; ++replica) {
    Json row = Json::array();
    for (int core = 0; core <= last_core; ++core) row.push_back(assignment.tpu_ordinal(replica, core));
    ordinals.push_back(row);
  }
  answer["tpu_ordinal"] = ordinals;
  answer["host_device_last"] = host;
  answer["tpu_device_last"] = assignment.tpu_device(last_replica, last_core, "worker");
  answer["lookup_replicas_core_0"] = looked_up(assignment, c.out.at("lookup_replicas_core_0"));
  return answer;
}

DeviceOrderMode mode_of(const std::string& name) {
  if (name == "AUTO") return DeviceOrderMode::Auto;
  if (name == "RING") return DeviceOrderMode::Ring;
  if (name == "MESH") return DeviceOrderMode::Mesh;
  throw HarnessError("[topology] unknown mode: " + name);
}

Json run_build(const Case& c) {
  return answer_of(
      DeviceAssignment::build(topology_of(c), {.computation_shape = sizes_of(c.field("computation_shape")),
                                               .computation_stride = sizes_of(c.field("computation_stride")),
                                               .num_replicas = c.in.at("num_replicas"),
                                               .device_order = mode_of(c.text("mode"))}),
      c);
}

Json run_direct(const Case& c) {
  return answer_of(DeviceAssignment(topology_of(c), places_of(c.in.at("core_assignment"))), c);
}

}  // namespace

Outcome run(const Case& test_case) {
  if (test_case.call == "topology") return Outcome::of_value(run_topology(test_case));
  if (test_case.call == "topology_lookup") return Outcome::of_value(run_lookup(test_case));
  if (test_case.call == "device_assignment") return Outcome::of_value(run_build(test_case));
  if (test_case.call == "direct_assignment") return Outcome::of_value(run_direct(test_case));
  throw HarnessError("[topology] unknown call: " + test_case.call);
}

}  // namespace lockstep::golden::drivers::topology
