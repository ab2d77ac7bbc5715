// A plugin with two cores of a TPU that can do nothing: for what a plugin for CPUs does not show. It knows the options
// `preallocate` and `memory_fraction` only, which its version repeats, and its table ends before the functions that
// compile. FAKE_PLUGIN_MINOR sets its version.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "lockstep/xla/pjrt/c_api.h"

namespace {

namespace c_api = lockstep::xla::c_api;
using c_api::Slot;

constexpr size_t kNumFunctions = static_cast<size_t>(Slot::DeviceGetDescription) + 1;
// What a plugin of a later version expects behind the fields that we know.
constexpr size_t kLaterFields = 64;

struct Table {
  c_api::Header header;
  c_api::Version version;
  c_api::Function functions[kNumFunctions];
};

struct Device {
  int id;
  std::array<int64_t, 3> coordinates;
  std::array<int64_t, 1> core;
};

// Ids in no order.
std::array devices{Device{7, {1, 0, 2}, {1}}, Device{6, {1, 0, 2}, {0}}};
std::array<void*, 2> handles{&devices[0], &devices[1]};
std::array<c_api::NamedValue, 3> attributes;
std::string client = "client";
std::string platform_version = "fake 1";

/// Returns an error where the block is too short for a later version of it.
template <typename Arguments>
void* refuse_short(const Arguments& arguments) {
  static std::string too_short = "the block is too short";
  return arguments.header.size < sizeof(Arguments) + kLaterFields ? &too_short : nullptr;
}

template <typename Arguments, void (*answer)(Arguments&)>
void* function(void* block) {
  auto& arguments = *static_cast<Arguments*>(block);
  if (void* error = refuse_short(arguments)) return error;
  answer(arguments);
  return nullptr;
}

void set_text(c_api::TextOfObject& arguments, const char* text) {
  arguments.text = text;
  arguments.text_size = std::strlen(text);
}

void* tell_error(void* block) {
  auto& arguments = *static_cast<c_api::TextOfObject*>(block);
  set_text(arguments, static_cast<const std::string*>(arguments.object)->c_str());
  return nullptr;
}

void* create_client(void* block) {
  static std::string unknown_option;
  auto& arguments = *static_cast<c_api::ClientCreate*>(block);
  for (size_t i = 0; i < arguments.num_options; ++i) {
    const c_api::NamedValue& option = arguments.options[i];
    const std::string name(option.name, option.name_size);
    if (name == "preallocate" && option.type == c_api::ValueType::Bool) {
      platform_version += std::string(" preallocate=") + (option.flag ? "true" : "false");
    } else if (name == "memory_fraction" && option.type == c_api::ValueType::Float) {
      platform_version += " memory_fraction=" + std::to_string(option.number);
    } else {
      unknown_option = "unknown option " + name;
      return &unknown_option;
    }
  }
  arguments.client = &client;
  return refuse_short(arguments);
}

void nothing(c_api::OneObject&) {}
void initialize(c_api::NoArguments&) {}
void tell_platform(c_api::TextOfObject& arguments) { set_text(arguments, "tpu"); }
void tell_version(c_api::TextOfObject& arguments) { set_text(arguments, platform_version.c_str()); }
void tell_kind(c_api::TextOfObject& arguments) { set_text(arguments, "TPU v4"); }
void tell_device(c_api::TextOfObject& arguments) { set_text(arguments, "a fake core"); }

void list_devices(c_api::Devices& arguments) {
  arguments.devices = handles.data();
  arguments.num_devices = handles.size();
}

// A device describes itself.
void get_description(c_api::ObjectOfObject& arguments) { arguments.result = arguments.object; }
void tell_id(c_api::IntOfObject& arguments) { arguments.result = static_cast<Device*>(arguments.object)->id; }
void tell_process(c_api::IntOfObject& arguments) { arguments.result = 3; }

c_api::NamedValue named(const char* name, const int64_t* values, size_t count) {
  c_api::NamedValue value{};
  value.header.size = sizeof(value);
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = c_api::ValueType::Int64List;
  value.integers = values;
  value.value_size = count;
  return value;
}

void tell_attributes(c_api::Attributes& arguments) {
  const auto& device = *static_cast<Device*>(arguments.description);
  attributes[0] = named("coords", device.coordinates.data(), device.coordinates.size());
  attributes[1] = named("something_else", device.core.data(), 1);
  attributes[2] = named("core_on_chip", device.core.data(), 1);
  arguments.attributes = attributes.data();
  arguments.num_attributes = attributes.size();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const void* GetPjrtApi() {
  static Table table{};
  const auto set = [&](Slot slot, c_api::Function function) { table.functions[static_cast<size_t>(slot)] = function; };
  const char* minor = std::getenv("FAKE_PLUGIN_MINOR");
  table.header.size = sizeof(table);
  table.version = {{sizeof(c_api::Version), nullptr}, 0, minor == nullptr ? 90 : std::atoi(minor)};
  set(Slot::ErrorDestroy, function<c_api::OneObject, nothing>);
  set(Slot::ErrorMessage, tell_error);
  set(Slot::PluginInitialize, function<c_api::NoArguments, initialize>);
  set(Slot::ClientCreate, create_client);
  set(Slot::ClientPlatformName, function<c_api::TextOfObject, tell_platform>);
  set(Slot::ClientPlatformVersion, function<c_api::TextOfObject, tell_version>);
  set(Slot::ClientAddressableDevices, function<c_api::Devices, list_devices>);
  set(Slot::DescriptionId, function<c_api::IntOfObject, tell_id>);
  set(Slot::DescriptionProcessIndex, function<c_api::IntOfObject, tell_process>);
  set(Slot::DescriptionAttributes, function<c_api::Attributes, tell_attributes>);
  set(Slot::DescriptionKind, function<c_api::TextOfObject, tell_kind>);
  set(Slot::DescriptionToString, function<c_api::TextOfObject, tell_device>);
  set(Slot::DeviceGetDescription, function<c_api::ObjectOfObject, get_description>);
  return &table;
}
