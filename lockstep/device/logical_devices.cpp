#include "lockstep/device/logical_devices.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include <ATen/Context.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/process_task.h"

namespace lockstep {
namespace {

constexpr std::string_view kTypes[] = {"CPU", "GPU", "TPU"};
constexpr int kMaxLogicalDevices = 4096;

struct Configuration {
  std::mutex mutex;
  /// For each type that was configured: the number of logical devices on each physical device.
  std::map<std::string, std::vector<int>, std::less<>> counts;
  std::vector<c10::Device> tpus;
};

Configuration& configuration() {
  static auto* instance = new Configuration;  // never destroyed: replica threads may outlive static objects
  return *instance;
}

std::vector<c10::Device> tpu_devices() {
  Configuration& config = configuration();
  const std::lock_guard lock(config.mutex);
  return config.tpus;
}

int num_physical_devices(std::string_view type) {
  if (type == "CPU") return 1;
  if (type == "TPU") return static_cast<int>(tpu_devices().size());
  return type == "GPU" ? static_cast<int>(at::getNumGPUs()) : 0;
}

c10::Device torch_device(std::string_view type, int physical_index) {
  if (type == "CPU") return c10::Device(c10::kCPU);
  if (type == "TPU") return tpu_devices()[static_cast<size_t>(physical_index)];
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(physical_index));
}

int default_num_logical_cpus() {
  const int64_t count = env::integer("LOCKSTEP_LOGICAL_CPUS");
  LOCKSTEP_CHECK_VALUE(count >= 1 && count <= kMaxLogicalDevices, "[environment] the variable must be from 1 to ",
                       kMaxLogicalDevices, ": LOCKSTEP_LOGICAL_CPUS=", count);
  return static_cast<int>(count);
}

std::vector<int> default_counts(std::string_view type) {
  if (type == "CPU") return {default_num_logical_cpus()};
  return std::vector<int>(num_physical_devices(type), 1);
}

std::vector<int> counts_of(std::string_view type) {
  Configuration& config = configuration();
  {
    const std::lock_guard lock(config.mutex);
    if (const auto found = config.counts.find(type); found != config.counts.end()) return found->second;
  }
  return default_counts(type);
}

void append_logical_devices(std::string_view type, std::vector<LogicalDevice>& devices) {
  const std::vector<int> counts = counts_of(type);
  int index = 0;
  for (int physical = 0; physical < static_cast<int>(counts.size()); ++physical) {
    for (int i = 0; i < counts[physical]; ++i, ++index) {
      const DeviceSpec spec = DeviceSpec().with_type(std::string(type)).with_index(index);
      devices.push_back({canonicalize(spec.to_string()), std::string(type), index, torch_device(type, physical)});
    }
  }
}

std::optional<LogicalDevice> look_up(std::string_view canonical_name) {
  for (LogicalDevice& device : list_logical_devices()) {
    if (device.name == canonical_name) return std::move(device);
  }
  return std::nullopt;
}

std::string names_of_logical_devices() {
  std::ostringstream out;
  for (const LogicalDevice& device : list_logical_devices()) {
    out << (out.tellp() > 0 ? ", " : "") << device.name;
  }
  return out.str();
}

/// Explains how to make the device that was not found.
std::string advice(std::string_view canonical_name) {
  const DeviceSpec spec = DeviceSpec::parse(canonical_name);
  const std::string type = spec.type().value_or("CPU");
  const ProcessTask own = process_task();
  if (spec.job().value_or(own.job) != own.job || spec.task().value_or(own.task) != own.task) {
    return "devices of other processes cannot be used from here";
  }
  const int num_physical = num_physical_devices(type);
  if (num_physical == 0 && type == "TPU") return "call initialize_tpu_system first";
  if (num_physical == 0) return c10::str("this machine has no ", type, " that LibTorch can use");
  return c10::str("call set_logical_devices(\"", type, "\", ", std::max(spec.index().value_or(0), 0) + 1,
                  ") first to have more of them");
}

}  // namespace

std::vector<PhysicalDevice> list_physical_devices(std::string_view type) {
  std::vector<PhysicalDevice> devices;
  for (std::string_view known : kTypes) {
    if (!type.empty() && type != known) continue;
    for (int i = 0; i < num_physical_devices(known); ++i) {
      devices.push_back({c10::str("/physical_device:", known, ":", i), std::string(known), torch_device(known, i)});
    }
  }
  return devices;
}

std::vector<LogicalDevice> list_logical_devices(std::string_view type) {
  std::vector<LogicalDevice> devices;
  for (std::string_view known : kTypes) {
    if (type.empty() || type == known) append_logical_devices(known, devices);
  }
  return devices;
}

void detail::set_tpu_devices(std::vector<c10::Device> devices) {
  Configuration& config = configuration();
  const std::lock_guard lock(config.mutex);
  config.tpus = std::move(devices);
}

void set_logical_devices(std::string_view type, int count) {
  const int num_physical = num_physical_devices(type);
  LOCKSTEP_CHECK_VALUE(count >= 1 && count <= kMaxLogicalDevices, "[set_logical_devices] the number must be from 1 to ",
                       kMaxLogicalDevices, ": type='", type, "', count=", count);
  std::vector<int> counts(num_physical);
  for (int i = 0; i < num_physical; ++i) counts[i] = count / num_physical + (i < count % num_physical ? 1 : 0);
  set_logical_devices_per_physical(type, counts);
}

void set_logical_devices_per_physical(std::string_view type, const std::vector<int>& counts) {
  const int num_physical = num_physical_devices(type);
  LOCKSTEP_CHECK_VALUE(num_physical > 0, "[set_logical_devices] the machine has no such device: type='", type,
                       "'; LibTorch sees ", num_physical_devices("CPU"), " CPU and ", num_physical_devices("GPU"),
                       " GPU");
  LOCKSTEP_CHECK_VALUE(static_cast<int>(counts.size()) == num_physical,
                       "[set_logical_devices] there must be one number for each physical device: type='", type,
                       "', numbers=", counts.size(), ", physical devices=", num_physical);
  for (int count : counts) {
    LOCKSTEP_CHECK_VALUE(count >= 0, "[set_logical_devices] the number of devices must not be negative: type='", type,
                         "', count=", count);
  }
  Configuration& config = configuration();
  const std::lock_guard lock(config.mutex);
  config.counts[std::string(type)] = counts;
}

void reset_logical_devices() {
  Configuration& config = configuration();
  const std::lock_guard lock(config.mutex);
  config.counts.clear();
}

LogicalDevice find_logical_device(std::string_view canonical_name) {
  std::optional<LogicalDevice> device = look_up(canonical_name);
  LOCKSTEP_CHECK_VALUE(device.has_value(), "[find_logical_device] there is no such device: device='", canonical_name,
                       "', existing=[", names_of_logical_devices(), "]; ", advice(canonical_name));
  return *std::move(device);
}

bool has_logical_device(std::string_view canonical_name) { return look_up(canonical_name).has_value(); }

}  // namespace lockstep
