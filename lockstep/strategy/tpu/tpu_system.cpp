#include "lockstep/strategy/tpu/tpu_system.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/xla/tensor/place.h"

namespace lockstep {
namespace {

using Coordinates = std::vector<tpu::MeshCoordinates>;

/// Other devices than TPUs may have coordinates too, which mean something else.
bool are_chips(const xla::Client& client) {
  return client.platform() == "tpu" &&
         std::all_of(client.devices().begin(), client.devices().end(),
                     [](const xla::DeviceInfo& device) { return device.coordinates.size() == 3; });
}

tpu::Topology topology_of_chips(const std::vector<xla::DeviceInfo>& devices) {
  std::vector<int> mesh(4, 1);
  Coordinates places;
  for (const xla::DeviceInfo& device : devices) {
    places.push_back({device.coordinates[0], device.coordinates[1], device.coordinates[2], device.core_on_chip});
    for (size_t axis = 0; axis < 4; ++axis) mesh[axis] = std::max(mesh[axis], places.back()[axis] + 1);
  }
  return tpu::Topology(mesh, {places});
}

/// Chips of two cores in a mesh as square as can be; of one core where the number is odd.
tpu::Topology made_up_topology(int count) {
  const int cores = count % 2 == 0 ? 2 : 1;
  const int chips = count / cores;
  int rows = 1;
  for (int i = 2; i * i <= chips; ++i) {
    if (chips % i == 0) rows = i;
  }
  Coordinates places;
  for (int i = 0; i < count; ++i)
    places.push_back({i / cores % (chips / rows), i / cores / (chips / rows), 0, i % cores});
  return tpu::Topology({chips / rows, rows, 1, cores}, {places});
}

void check_this_machine(const std::shared_ptr<ClusterResolver>& resolver) {
  if (!resolver) return;
  int tasks = 0;
  const ClusterSpec spec = resolver->cluster_spec();
  for (const std::string& job : spec.jobs()) tasks += spec.num_tasks(job);
  LOCKSTEP_CHECK_IMPLEMENTED(tasks <= 1, "[initialize_tpu_system] a process can use the devices of its own machine: ",
                             "hosts=", tasks, "; slices of several hosts are not supported yet");
}

}  // namespace

tpu::Topology initialize_tpu_system(const std::shared_ptr<ClusterResolver>& resolver, const TPUSystemOptions& options) {
  check_this_machine(resolver);
  const xla::Client& client = xla::start({options.plugin, options.num_cpu_devices});
  std::vector<c10::Device> devices;
  for (size_t i = 0; i < client.devices().size(); ++i) {
    devices.push_back(xla::place_of({static_cast<int>(i)}).torch_device());
  }
  detail::set_tpu_devices(std::move(devices));
  return are_chips(client) ? topology_of_chips(client.devices())
                           : made_up_topology(static_cast<int>(client.devices().size()));
}

TPUSystem tpu_system() {
  const xla::Client& client = xla::client();
  TPUSystem system{client.plugin(), client.platform(), client.platform_version(), client.api_version(), {}};
  const auto names = list_logical_devices("TPU");
  for (size_t i = 0; i < names.size(); ++i) system.devices.push_back({names[i].name, client.devices()[i].kind});
  return system;
}

bool has_tpu_plugin() { return xla::is_started() || !xla::find_plugin().empty(); }

}  // namespace lockstep
