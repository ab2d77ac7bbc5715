#include "tools/doctor/doctor_topology.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/slice_topology.h"

namespace lockstep::tools {
namespace {

using tpu::DeviceAssignment;
using tpu::DeviceOrderMode;
using tpu::MeshCoordinates;
using tpu::MeshShape;
using tpu::Topology;

std::vector<int> sizes_or_none(const std::string& option, const std::string& text) {
  return text.empty() ? std::vector<int>() : tpu::parse_sizes(option, text);
}

DeviceOrderMode order_of(const std::string& text) {
  if (text == "auto") return DeviceOrderMode::Auto;
  if (text == "ring") return DeviceOrderMode::Ring;
  LOCKSTEP_CHECK_VALUE(text == "mesh", "[doctor] the order is auto, ring or mesh: --device-order=", text);
  return DeviceOrderMode::Mesh;
}

tpu::EnvironmentTopology topology_of(const TopologyRequest& request, const Environment& variables) {
  const std::vector<int> chips_per_host = sizes_or_none("--chips-per-host", request.chips_per_host);
  if (request.topology != "env") return {tpu::topology_from_text(request.topology, chips_per_host), {}};
  LOCKSTEP_CHECK_VALUE(chips_per_host.empty(),
                       "[doctor] the environment says which chips a host has: --topology=env, --chips-per-host=",
                       request.chips_per_host, "; set TPU_CHIPS_PER_PROCESS_BOUNDS, or give the mesh");
  return tpu::topology_from_environment(variables);
}

/// Returns the topology without some of its hosts.
Topology without_hosts(const Topology& topology, std::vector<int> hosts) {
  auto devices = topology.device_coordinates();
  std::sort(hosts.begin(), hosts.end(), std::greater<>());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  for (const int host : hosts) {
    LOCKSTEP_CHECK_VALUE(host >= 0 && host < topology.num_tasks(),
                         "[doctor] there is no such host: --missing-hosts=", host, ", hosts=", topology.num_tasks());
    devices.erase(devices.begin() + host);
  }
  return Topology(tpu::listed(topology.mesh_shape()), std::move(devices));
}

/// What each core of a mesh shows.
class CoreTexts {
 public:
  explicit CoreTexts(const DeviceAssignment& assignment) : topology_(assignment.topology()) {
    for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
      for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
        texts_[assignment.coordinates(replica, core)] = std::to_string(replica) + "." + std::to_string(core);
      }
    }
    for (const auto& [place, text] : texts_) width_ = std::max(width_, text.size());
  }

  /// Returns the cell of a chip: its cores side by side.
  std::string cell(int x, int y, int z) const {
    std::string result;
    for (int core = 0; core < topology_.mesh_shape()[tpu::kCoreAxis]; ++core) {
      const std::string text = of({x, y, z, core});
      result += std::string(core == 0 ? 1 : 0, ' ') + std::string(width_ - text.size(), ' ') + text + " ";
    }
    return result;
  }

 private:
  std::string of(const MeshCoordinates& place) const {
    const auto found = texts_.find(place);
    if (found != texts_.end()) return found->second;
    return topology_.task_ordinal_at_coordinates(place) ? "." : "x";
  }

  const Topology& topology_;
  std::map<MeshCoordinates, std::string> texts_;
  size_t width_ = 1;
};

/// One layer of chips, with the borders of its hosts.
class LayerDrawing {
 public:
  LayerDrawing(const DeviceAssignment& assignment, const CoreTexts& texts, int z)
      : topology_(assignment.topology()), texts_(texts), z_(z), mesh_(topology_.mesh_shape()) {
    cell_width_ = texts_.cell(0, 0, z).size();
    label_width_ = std::to_string(mesh_[1] - 1).size() + 4;
  }

  std::string draw() const {
    std::string picture = header();
    for (int y = 0; y < mesh_[1]; ++y) picture += border_above(y) + row(y);
    return picture + border_above(mesh_[1]);
  }

 private:
  /// Returns the host of a chip, or -1 outside the mesh and -2 where the chip is missing.
  int host_of(int x, int y) const {
    if (x < 0 || y < 0 || x >= mesh_[0] || y >= mesh_[1]) return -1;
    for (int core = 0; core < mesh_[tpu::kCoreAxis]; ++core) {
      if (const auto task = topology_.task_ordinal_at_coordinates({x, y, z_, core})) return *task;
    }
    return -2;
  }

  bool has_border_left(int x, int y) const { return host_of(x - 1, y) != host_of(x, y); }
  bool has_border_above(int x, int y) const { return host_of(x, y - 1) != host_of(x, y); }

  std::string label(const std::string& text) const { return text + std::string(label_width_ - text.size(), ' '); }

  std::string header() const {
    std::string line = label(c10::str("z=", z_));
    for (int x = 0; x < mesh_[0]; ++x) {
      const std::string text = c10::str("x=", x);
      const size_t left = text.size() < cell_width_ ? (cell_width_ - text.size()) / 2 : 0;
      line += " " + std::string(left, ' ') + text;
      line += std::string(cell_width_ - std::min(cell_width_, left + text.size()), ' ');
    }
    return trimmed(line);
  }

  std::string row(int y) const {
    std::string line = label(c10::str("y=", y));
    for (int x = 0; x < mesh_[0]; ++x) line += (has_border_left(x, y) ? "|" : " ") + texts_.cell(x, y, z_);
    return line + "|\n";
  }

  /// Returns the line above row y, or nothing where no host ends there.
  std::string border_above(int y) const {
    std::string line = label("");
    bool any = false;
    for (int x = 0; x <= mesh_[0]; ++x) {
      const bool above = x < mesh_[0] && has_border_above(x, y);
      const bool is_joint = above || (x > 0 && has_border_above(x - 1, y));
      const bool goes_down = has_border_left(x, y) || has_border_left(x, y - 1);
      line += is_joint && goes_down ? '+' : is_joint ? '-' : goes_down ? '|' : ' ';
      if (x < mesh_[0]) line += std::string(cell_width_, above ? '-' : ' ');
      any = any || above;
    }
    return any ? trimmed(line) : "";
  }

  static std::string trimmed(const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1) + "\n"; }

  const Topology& topology_;
  const CoreTexts& texts_;
  int z_;
  MeshShape mesh_;
  size_t cell_width_ = 0;
  size_t label_width_ = 0;
};

std::string place_text(const MeshCoordinates& place) {
  return c10::str("(", place[0], ",", place[1], ",", place[2], ",", place[3], ")");
}

/// Returns "host 0 TPU 0 1, host 1 TPU 0".
std::string devices_text(const DeviceAssignment& assignment, int replica) {
  std::string result;
  std::optional<int> host;
  for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
    const auto task = assignment.topology().task_ordinal_at_coordinates(assignment.coordinates(replica, core));
    if (task != host) result += c10::str(result.empty() ? "" : ", ", "host ", *task, " TPU");
    result += c10::str(" ", assignment.tpu_ordinal(replica, core));
    host = task;
  }
  return result;
}

void print_table(const DeviceAssignment& assignment, std::ostream& out) {
  const auto width = static_cast<int>(std::to_string(std::max(assignment.num_replicas() - 1, 0)).size());
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    out << "replica " << std::setw(width) << replica << ": ";
    for (const MeshCoordinates& place : assignment.core_assignment()[static_cast<size_t>(replica)]) {
      out << place_text(place) << ' ';
    }
    out << "-> " << devices_text(assignment, replica) << '\n';
  }
}

}  // namespace

TopologyAnswer examine_topology(const TopologyRequest& request, const Environment& variables) {
  auto [topology, facts] = topology_of(request, variables);
  if (!request.missing_hosts.empty()) topology = without_hosts(topology, request.missing_hosts);
  tpu::DeviceAssignmentOptions options{
      .computation_shape = sizes_or_none("--computation-shape", request.computation_shape),
      .computation_stride = sizes_or_none("--computation-stride", request.computation_stride),
      .device_order = order_of(request.device_order)};
  options.num_replicas =
      request.num_replicas ? *request.num_replicas : DeviceAssignment::max_replicas(topology, options);
  return {DeviceAssignment::build(topology, options), std::move(facts)};
}

std::string draw(const DeviceAssignment& assignment) {
  const CoreTexts texts(assignment);
  std::string picture;
  for (int z = 0; z < assignment.topology().mesh_shape()[2]; ++z) {
    picture += (z == 0 ? "" : "\n") + LayerDrawing(assignment, texts, z).draw();
  }
  return picture;
}

void print_topology(const TopologyAnswer& answer, std::ostream& out) {
  const DeviceAssignment& assignment = answer.assignment;
  const Topology& topology = assignment.topology();
  out << "mesh " << tpu::describe(topology.mesh_shape()) << "; hosts: " << topology.num_tasks()
      << ", TPUs of each: " << topology.num_tpus_per_task() << "; replicas: " << assignment.num_replicas()
      << ", cores of each: " << assignment.num_cores_per_replica() << '\n';
  for (const ClusterFact& fact : answer.facts) {
    out << "  " << fact.field << " = " << fact.value << "  (" << fact.source << ")\n";
  }
  out << '\n' << draw(assignment) << '\n';
  out << "3.1 = logical device 1 of replica 3; . = not used; x = missing; lines = borders of hosts\n\n";
  print_table(assignment, out);
}

Json to_json(const TopologyAnswer& answer) {
  const DeviceAssignment& assignment = answer.assignment;
  const Topology& topology = assignment.topology();
  Json replicas = Json::array();
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    Json cores = Json::array();
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      const MeshCoordinates& place = assignment.coordinates(replica, core);
      cores.push_back({{"coordinates", place},
                       {"host", *topology.task_ordinal_at_coordinates(place)},
                       {"tpu", assignment.tpu_ordinal(replica, core)}});
    }
    replicas.push_back(std::move(cores));
  }
  Json facts = Json::array();
  for (const ClusterFact& fact : answer.facts) {
    facts.push_back({{"field", fact.field}, {"value", fact.value}, {"source", fact.source}});
  }
  return {{"mesh_shape", topology.mesh_shape()},
          {"num_hosts", topology.num_tasks()},
          {"tpus_per_host", topology.num_tpus_per_task()},
          {"missing", topology.missing_devices()},
          {"num_replicas", assignment.num_replicas()},
          {"cores_per_replica", assignment.num_cores_per_replica()},
          {"replicas", std::move(replicas)},
          {"facts", std::move(facts)}};
}

}  // namespace lockstep::tools
