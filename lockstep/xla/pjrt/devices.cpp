#include "lockstep/xla/pjrt/devices.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {
namespace {

using c_api::Block;
using c_api::Slot;
using c_api::ValueType;

constexpr const char* kOperation = "devices";

int number_of(const Plugin& plugin, Slot slot, void* description) {
  Block<c_api::IntOfObject> block;
  block->object = description;
  plugin.call(slot, block, kOperation);
  return block->result;
}

/// TPUs report their position. A number may be a list of one entry.
void read_attribute(const c_api::NamedValue& attribute, DeviceInfo& info) {
  const std::string_view name(attribute.name, attribute.name_size);
  const bool is_list = attribute.type == ValueType::Int64List;
  if (name == "coords" && is_list) {
    info.coordinates.assign(attribute.integers, attribute.integers + attribute.value_size);
  } else if (name == "core_on_chip" && is_list && attribute.value_size > 0) {
    info.core_on_chip = static_cast<int>(attribute.integers[0]);
  } else if (name == "core_on_chip" && attribute.type == ValueType::Int64) {
    info.core_on_chip = static_cast<int>(attribute.integer);
  }
}

DeviceInfo describe(const Plugin& plugin, void* device) {
  void* const description = plugin.object(Slot::DeviceGetDescription, device, kOperation);
  DeviceInfo info;
  info.id = number_of(plugin, Slot::DescriptionId, description);
  info.process = number_of(plugin, Slot::DescriptionProcessIndex, description);
  info.kind = plugin.text(Slot::DescriptionKind, description, kOperation);
  info.text = plugin.text(Slot::DescriptionToString, description, kOperation);
  Block<c_api::Attributes> block;
  block->description = description;
  plugin.call(Slot::DescriptionAttributes, block, kOperation);
  for (const auto& attribute : std::span(block->attributes, block->num_attributes)) read_attribute(attribute, info);
  return info;
}

}  // namespace

std::vector<std::pair<DeviceInfo, void*>> own_devices(const Plugin& plugin, void* client) {
  Block<c_api::Devices> block;
  block->client = client;
  plugin.call(Slot::ClientAddressableDevices, block, kOperation);
  std::vector<std::pair<DeviceInfo, void*>> devices;
  for (void* device : std::span(block->devices, block->num_devices)) {
    devices.emplace_back(describe(plugin, device), device);
  }
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.first.id < b.first.id; });
  return devices;
}

}  // namespace lockstep::xla
