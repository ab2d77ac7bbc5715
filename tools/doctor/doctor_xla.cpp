#include "tools/doctor/doctor_xla.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/find_plugin.h"

namespace lockstep::tools {
namespace {

using xla::HiddenSve;

/// Returns a program that sums a number over replicas.
std::string sum_over_replicas(size_t num_replicas) {
  std::vector<size_t> replicas;
  for (size_t i = 0; i < num_replicas; ++i) replicas.push_back(i);
  return c10::str("module attributes {mhlo.num_replicas = ", num_replicas, R"( : i32} {
  func.func public @main(%number: tensor<f32>) -> tensor<f32> {
    %sum = "stablehlo.all_reduce"(%number) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<[[)",
                  c10::Join(", ", replicas), "]]> : tensor<1x", num_replicas, R"(xi64>} : (tensor<f32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
})");
}

/// Sums 1, 2, ... over the devices; throws the plugin's errors, and where a device has another sum.
void sum_over_devices(const xla::Client& client) {
  std::vector<std::vector<int>> ids;
  std::vector<xla::Buffer> numbers;
  std::vector<std::vector<void*>> arguments;
  float expected = 0;
  for (const auto& device : client.devices()) {
    const auto index = static_cast<int>(ids.size());
    const auto number = static_cast<float>(index + 1);
    expected += number;
    ids.push_back({device.id});
    numbers.push_back(client.upload(&number, xla::ElementType::F32, {}, index));
    arguments.push_back({numbers.back().handle()});
  }
  const auto program = client.compile(sum_over_replicas(ids.size()), ids);
  for (const auto& results : program.execute(arguments)) {
    float sum = 0;
    results.front().download(&sum, sizeof(sum));
    LOCKSTEP_CHECK_AS(c10::Error, sum == expected, "the sum is ", sum, " and should be ", expected);
  }
}

void run_self_test(const xla::Client& client, PluginState& state) {
  const std::string test = c10::str("sum over ", state.devices.size(), " devices: ");
  try {
    sum_over_devices(client);
    state.self_test = test + "ok";
    state.passed = true;
  } catch (const c10::Error& error) {
    state.self_test = test + "FAILED: " + error.what_without_backtrace();
  }
}

PluginState examine_plugin(const std::string& file) {
  PluginState state{.file = file};
  try {
    const xla::Client& client = xla::Client::open({.plugin = file});
    state.api_version = client.api_version();
    state.platform = client.platform();
    state.platform_version = client.platform_version();
    state.devices = client.devices();
    state.hidden_sve = client.hidden_sve();
    run_self_test(client, state);
  } catch (const c10::Error& error) {
    state.error = error.what_without_backtrace();
  }
  return state;
}

const char* describe(HiddenSve hidden) {
  switch (hidden) {
    case HiddenSve::No:
      return "no";
    case HiddenSve::Cured:
      return "yes, and the plugin was told so";
    case HiddenSve::NotCured:
      return "yes, and the plugin cannot be told: it compiles nothing here";
  }
  return "";
}

std::string describe(const xla::DeviceInfo& device) {
  std::string text = c10::str("device ", device.id, ": ", device.kind, ", process ", device.process);
  if (!device.coordinates.empty()) {
    text += c10::str(", chip (", c10::Join(",", device.coordinates), "), core ", device.core_on_chip);
  }
  return text + "; " + device.text;
}

void print_plugin(const PluginState& plugin, std::ostream& out) {
  out << "plugin: " << plugin.file << '\n';
  if (!plugin.error.empty()) {
    out << "  FAILED: " << plugin.error << '\n';
    return;
  }
  out << "  interface: " << plugin.api_version << '\n';
  out << "  platform: " << plugin.platform << ", version " << plugin.platform_version << '\n';
  for (const auto& device : plugin.devices) out << "  " << describe(device) << '\n';
  out << "  SVE is hidden: " << describe(plugin.hidden_sve) << '\n';
  out << "  " << plugin.self_test << '\n';
}

Json to_json(const PluginState& plugin) {
  if (!plugin.error.empty()) return {{"plugin", plugin.file}, {"error", plugin.error}};
  Json devices = Json::array();
  for (const auto& device : plugin.devices) {
    Json entry{{"id", device.id}, {"process", device.process}, {"kind", device.kind}, {"text", device.text}};
    if (!device.coordinates.empty()) {
      entry["coordinates"] = device.coordinates;
      entry["core_on_chip"] = device.core_on_chip;
    }
    devices.push_back(std::move(entry));
  }
  return {{"plugin", plugin.file},         {"interface", plugin.api_version},
          {"platform", plugin.platform},   {"platform_version", plugin.platform_version},
          {"devices", std::move(devices)}, {"hidden_sve", describe(plugin.hidden_sve)},
          {"self_test", plugin.self_test}};
}

}  // namespace

bool XlaState::passed() const {
  return !plugins.empty() &&
         std::all_of(plugins.begin(), plugins.end(), [](const PluginState& plugin) { return plugin.passed; });
}

XlaState examine_xla() {
  XlaState state;
  xla::find_plugin(&state.searched);
  for (const auto& file : xla::list_plugins()) state.plugins.push_back(examine_plugin(file));
  return state;
}

void print_xla(const XlaState& state, std::ostream& out) {
  for (const PluginState& plugin : state.plugins) print_plugin(plugin, out);
  if (!state.plugins.empty()) return;
  out << "no plugin was found; places that were looked at:\n";
  for (const auto& place : state.searched) out << "  " << place << '\n';
  out << xla::how_to_get_a_plugin() << '\n';
}

Json to_json(const XlaState& state) {
  Json plugins = Json::array();
  for (const PluginState& plugin : state.plugins) plugins.push_back(to_json(plugin));
  Json result{{"plugins", std::move(plugins)}, {"searched", state.searched}};
  if (state.plugins.empty()) result["what_to_do"] = xla::how_to_get_a_plugin();
  return result;
}

}  // namespace lockstep::tools
