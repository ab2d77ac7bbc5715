#include "lockstep/strategy/tpu/tpu_system.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/tpu/this_machine.h"
#include "lockstep/xla/engine/start.h"
#include "lockstep/xla/pjrt/find_plugin.h"

namespace lockstep {
namespace {

using Coordinates = std::vector<tpu::MeshCoordinates>;

/// Coordinates of other devices than TPUs have another meaning.
bool are_chips(const xla::Client& client) {
  return client.platform() == "tpu" &&
         std::all_of(client.devices().begin(), client.devices().end(),
                     [](const xla::DeviceInfo& device) { return device.coordinates.size() == 3; });
}

tpu::Topology topology_of_chips(const std::vector<xla::DeviceInfo>& devices) {
  std::vector<int> mesh(4, 1);
  Coordinates coordinates;
  for (const xla::DeviceInfo& device : devices) {
    coordinates.push_back({device.coordinates[0], device.coordinates[1], device.coordinates[2], device.core_on_chip});
    for (size_t axis = 0; axis < 4; ++axis) mesh[axis] = std::max(mesh[axis], coordinates.back()[axis] + 1);
  }
  return tpu::Topology(mesh, {coordinates});
}

/// Returns a mesh that is as square as possible, of chips with two cores, or with one if the number is odd.
tpu::Topology artificial_topology(int count) {
  const int cores = count % 2 == 0 ? 2 : 1;
  const int chips = count / cores;
  int rows = 1;
  for (int i = 2; i * i <= chips; ++i) {
    if (chips % i == 0) rows = i;
  }
  Coordinates coordinates;
  for (int i = 0; i < count; ++i)
    coordinates.push_back({i / cores % (chips / rows), i / cores / (chips / rows), 0, i % cores});
  return tpu::Topology({chips / rows, rows, 1, cores}, {coordinates});
}

void check_this_machine(const std::shared_ptr<ClusterResolver>& resolver, const char* operation) {
  if (!resolver) return;
  const ClusterSpec spec = resolver->cluster_spec();
  const TaskType own = resolver->task_type();
  for (const std::string& job : spec.jobs()) {
    // Another job is that of a coordinator, which has no devices.
    if (own && spec.has_job(*own) && job != *own) continue;
    LOCKSTEP_CHECK_IMPLEMENTED(spec.num_tasks(job) <= 1, "[", operation,
                               "] a process can use only the devices of its own machine: hosts=", spec.num_tasks(job),
                               "; slices of several hosts are not supported");
    for (const int task : spec.task_indices(job)) {
      const std::string address = spec.task_address(job, task);
      LOCKSTEP_CHECK_IMPLEMENTED(detail::is_this_machine(address), "[", operation,
                                 "] a process can use only the devices of its own machine: the TPU is at ", address,
                                 ", which is another one; run the program there, with tpu=\"local\"");
    }
  }
}

}  // namespace

tpu::Topology initialize_tpu_system(const std::shared_ptr<ClusterResolver>& resolver, const TPUSystemOptions& options) {
  check_this_machine(resolver, "initialize_tpu_system");
  const xla::Client& client = xla::start({options.plugin, options.num_cpu_devices, options.client_options});
  std::vector<c10::Device> devices;
  for (size_t i = 0; i < client.devices().size(); ++i) {
    devices.push_back(xla::device_of({static_cast<int>(i)}).torch_device());
  }
  detail::set_tpu_devices(std::move(devices));
  return are_chips(client) ? topology_of_chips(client.devices())
                           : artificial_topology(static_cast<int>(client.devices().size()));
}

void experimental_connect_to_cluster(const std::shared_ptr<ClusterResolver>& resolver) {
  LOCKSTEP_CHECK_VALUE(resolver != nullptr,
                       "[experimental_connect_to_cluster] there must be a resolver: resolver=null");
  check_this_machine(resolver, "experimental_connect_to_cluster");
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
