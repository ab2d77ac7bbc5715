#include "lockstep/xla/pjrt/create_client.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::xla {
namespace {

using c_api::Block;
using c_api::NamedValue;
using c_api::Slot;
using c_api::ValueType;

constexpr const char* kCpuDevices = "cpu_device_count";
constexpr const char* kPreallocate = "preallocate";

/// Writes a value to the block of the option. Points into `value`.
struct SetValue {
  NamedValue& to;

  void operator()(bool value) const {
    to.type = ValueType::Bool;
    to.flag = value;
  }
  void operator()(int64_t value) const {
    to.type = ValueType::Int64;
    to.integer = value;
  }
  void operator()(double value) const {
    to.type = ValueType::Float;
    to.number = static_cast<float>(value);
  }
  void operator()(const std::string& value) const {
    to.type = ValueType::String;
    to.text = value.data();
    to.value_size = value.size();
  }
  void operator()(const std::vector<int64_t>& value) const {
    to.type = ValueType::Int64List;
    to.integers = value.data();
    to.value_size = value.size();
  }
};

std::vector<NamedValue> named_values(const PluginOptions& options) {
  std::vector<NamedValue> values;
  for (const auto& [name, value] : options) {
    NamedValue& option = values.emplace_back();
    option = {};
    option.header.size = sizeof(option);
    option.name = name.data();
    option.name_size = name.size();
    option.value_size = 1;
    std::visit(SetValue{option}, value);
  }
  return values;
}

void* create(const Plugin& plugin, const PluginOptions& options) {
  const std::vector<NamedValue> values = named_values(options);
  Block<c_api::ClientCreate> block;
  block->options = values.empty() ? nullptr : values.data();
  block->num_options = values.size();
  plugin.call(Slot::ClientCreate, block, "client");
  return block->client;
}

bool is_named(const Plugin& plugin, const char* part) {
  return std::filesystem::path(plugin.path()).filename().string().find(part) != std::string::npos;
}

bool is_for_gpus(const Plugin& plugin) { return is_named(plugin, "cuda") || is_named(plugin, "rocm"); }

/// The defaults for this plugin, in the order in which they are tried. Its platform is unknown before it is started.
std::vector<PluginOptions> default_options(const Plugin& plugin, int num_cpu_devices) {
  const PluginOptions cpu{{kCpuDevices, int64_t{num_cpu_devices}}};
  if (is_for_gpus(plugin)) return {{{kPreallocate, false}}};
  if (has_own_devices(plugin)) return {{}};
  if (is_named(plugin, "cpu")) return {cpu};
  return {cpu, {}};
}

}  // namespace

bool has_own_devices(const Plugin& plugin) { return is_named(plugin, "tpu") || is_for_gpus(plugin); }

std::string plugin_options_text(const PluginOptions& options) {
  std::string text;
  for (const auto& [name, option] : options) {
    text.append(text.empty() ? "" : ", ").append(name).append("=");
    std::visit(
        [&](const auto& value) {
          using Type = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<Type, bool>) {
            text += value ? "true" : "false";
          } else if constexpr (std::is_same_v<Type, std::vector<int64_t>>) {
            text += c10::str("[", c10::Join(" ", value), "]");
          } else {
            text += c10::str(value);
          }
        },
        option);
  }
  return text;
}

void check_known_to_cpu(const Plugin& plugin, const PluginOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.empty(),
                       "[xla client] the plugin for CPUs knows no such option: ", plugin_options_text(options),
                       ", plugin=", plugin.path(), "; the number of devices is num_cpu_devices, and there is no other");
}

void* create_client(const Plugin& plugin, const PluginOptions& options, int num_cpu_devices) {
  if (is_named(plugin, "cpu") && !has_own_devices(plugin)) check_known_to_cpu(plugin, options);
  std::string why;
  for (const PluginOptions& defaults : default_options(plugin, num_cpu_devices)) {
    PluginOptions all = options;
    all.insert(defaults.begin(), defaults.end());  // does not replace what the user gave
    try {
      return create(plugin, all);
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
      LOCKSTEP_LOG(Info) << "the plugin was not started with the options " << plugin_options_text(all) << ": " << why;
    }
  }
  LOCKSTEP_CHECK_VALUE(options.empty(), why, "; client_options: ", plugin_options_text(options),
                       ", plugin=", plugin.path());
  LOCKSTEP_THROW(c10::Error, why);
}

}  // namespace lockstep::xla
