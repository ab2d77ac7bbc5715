#include "lockstep/device/device_list.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/process_task.h"

namespace lockstep {
namespace {

using Specs = std::vector<DeviceSpec>;

Specs parse_all(const std::vector<std::string>& devices) {
  Specs specs;
  for (const std::string& device : devices) specs.push_back(DeviceSpec::parse(device));
  return specs;
}

std::string join(const std::vector<std::string>& devices) {
  std::ostringstream out;
  for (const std::string& device : devices) out << (out.tellp() > 0 ? ", " : "") << device;
  return out.str();
}

std::string job_of(const DeviceSpec& spec) { return spec.job().value_or(process_task().job); }

bool is_local(const DeviceSpec& spec) {
  const ProcessTask own = process_task();
  return job_of(spec) == "localhost" || (job_of(spec) == own.job && spec.task().value_or(own.task) == own.task);
}

/// Returns whether all specs are of one worker; `devices` are their strings, for messages.
bool is_single_worker(const Specs& specs, const std::vector<std::string>& devices) {
  const size_t num_local = std::count_if(specs.begin(), specs.end(), is_local);
  LOCKSTEP_CHECK_VALUE(num_local == 0 || num_local == specs.size(),
                       "[device list] local and remote devices must not be mixed: devices=[", join(devices),
                       "]; a local device has no job, or 'localhost'");
  std::set<std::tuple<std::string, std::optional<int>, std::optional<int>>> workers;
  for (const DeviceSpec& spec : specs) workers.insert({job_of(spec), spec.task(), spec.replica()});
  const bool tasks_known = std::all_of(specs.begin(), specs.end(), [](const DeviceSpec& s) { return s.task(); });
  LOCKSTEP_CHECK_VALUE(num_local > 0 || workers.size() != 1 || tasks_known,
                       "[device list] a remote device must name its task: devices=[", join(devices),
                       "]; write for example '/job:worker/task:0/cpu:0'");
  return workers.size() <= 1;
}

int num_gpus(const std::vector<std::string>& devices) {
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [](const std::string& device) {
    return DeviceSpec::parse(device).type() == "GPU";
  }));
}

void check_gpus_are_numbered_through(const std::vector<std::string>& devices) {
  const int count = num_gpus(devices);
  for (const DeviceSpec& spec : parse_all(devices)) {
    LOCKSTEP_CHECK_VALUE(spec.type() != "GPU" || spec.index().value_or(0) < count,
                         "[infer_num_gpus_per_worker] the GPUs of a worker must be numbered from 0 on: device=", spec,
                         ", GPUs of the worker=", count);
  }
}

}  // namespace

std::vector<std::string> default_device_list() {
  std::vector<LogicalDevice> devices = list_logical_devices("GPU");
  if (devices.empty()) devices = list_logical_devices("CPU");
  std::vector<std::string> names;
  for (LogicalDevice& device : devices) names.push_back(std::move(device.name));
  return names;
}

std::vector<std::string> resolve_device_list(const std::vector<std::string>& devices) {
  if (devices.empty()) return default_device_list();
  std::vector<std::string> names;
  Specs specs;
  const DeviceSpec scope = DeviceSpec::parse(current_device(MissingJob::LeftOut));
  for (const std::string& device : devices) {
    names.push_back(resolve(device));
    specs.push_back(scope.merged_with(DeviceSpec::parse(device)));
    // A local device needs no task and replica: they are 0.
    if (is_local(specs.back())) specs.back() = DeviceSpec::parse(names.back());
  }
  LOCKSTEP_CHECK_VALUE(std::set(names.begin(), names.end()).size() == names.size(),
                       "[device list] a device must not be there twice: devices=[", join(names), "]");
  LOCKSTEP_CHECK_VALUE(is_single_worker(specs, devices),
                       "[device list] the devices must belong to one worker: devices=[", join(names),
                       "]; use MultiWorkerMirroredStrategy for several workers");
  for (const std::string& name : names) find_logical_device(name);
  return names;
}

bool is_device_list_single_worker(const std::vector<std::string>& devices) {
  return is_single_worker(parse_all(devices), devices);
}

DeviceGroups group_device_list(const std::vector<std::string>& devices) {
  LOCKSTEP_CHECK_VALUE(!is_device_list_single_worker(devices),
                       "[group_device_list] the devices must belong to several workers: devices=[", join(devices), "]");
  DeviceGroups groups;
  for (const std::string& device : devices) {
    const DeviceSpec spec = DeviceSpec::parse(device);
    LOCKSTEP_CHECK_VALUE(spec.task(), "[group_device_list] each device must name its task: device='", device, "'");
    groups[job_of(spec)][*spec.task()].push_back(device);
  }
  return groups;
}

int infer_num_gpus_per_worker(const std::vector<std::string>& devices) {
  if (is_device_list_single_worker(devices)) return num_gpus(devices);
  std::optional<int> count;
  for (const auto& [job, tasks] : group_device_list(devices)) {
    for (const auto& [task, devices_of_task] : tasks) {
      const int here = num_gpus(devices_of_task);
      LOCKSTEP_CHECK_VALUE(count.value_or(here) == here,
                           "[infer_num_gpus_per_worker] all workers must have the same number of GPUs: job='", job,
                           "', task=", task, ", GPUs=", here, ", GPUs of the workers before=", count.value_or(here));
      check_gpus_are_numbered_through(devices_of_task);
      count = here;
    }
  }
  return count.value_or(0);
}

std::vector<std::string> local_devices_from_num_gpus(int num_gpus) {
  std::vector<std::string> devices;
  for (int i = 0; i < num_gpus; ++i) devices.push_back(c10::str("/device:GPU:", i));
  if (devices.empty()) devices.push_back("/device:CPU:0");
  return devices;
}

}  // namespace lockstep
