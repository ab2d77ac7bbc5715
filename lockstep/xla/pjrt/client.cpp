#include "lockstep/xla/pjrt/client.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/compile_options.h"
#include "lockstep/xla/pjrt/create_client.h"
#include "lockstep/xla/pjrt/find_plugin.h"
#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

using c_api::Block;
using c_api::Slot;

namespace {

constexpr std::string_view kCpu = "cpu";

/// Returns the canonical path of the plugin that was asked for, or of the one that is found.
std::string resolve(const std::string& plugin) {
  if (!plugin.empty()) {
    std::error_code absent;
    const auto path = std::filesystem::canonical(plugin, absent);
    return absent ? plugin : path.string();
  }
  std::vector<std::string> searched;
  std::string found = find_plugin(&searched);
  LOCKSTEP_CHECK_VALUE(!found.empty(), "[xla] no plugin was found: searched=", c10::Join(", ", searched), "; ",
                       how_to_get_a_plugin());
  return found;
}

void check_device_ids(const std::vector<std::vector<int>>& device_ids) {
  LOCKSTEP_CHECK_VALUE(!device_ids.empty() && !device_ids.front().empty(),
                       "[xla compile] a program needs one device at least: replicas=", device_ids.size());
  for (const auto& replica : device_ids) {
    LOCKSTEP_CHECK_VALUE(replica.size() == device_ids.front().size(),
                         "[xla compile] every replica must have as many partitions as the first: partitions=",
                         replica.size(), ", of the first=", device_ids.front().size());
  }
}

}  // namespace

struct Client::State {
  explicit State(const Plugin& opened) : plugin(opened) {}

  const Plugin& plugin;
  void* client = nullptr;
  std::string platform;
  std::string platform_version;
  std::vector<DeviceInfo> devices;
  /// Handles of PJRT, in the order of `devices`.
  std::vector<void*> device_handles;
  /// What it was started with; the number is that of a CPU plugin.
  PluginOptions options;
  int num_cpu_devices = 0;
  HiddenSve hidden_sve = HiddenSve::No;
  /// Number of launches. Processes of a job launch in the same order, so it identifies a launch across processes.
  std::atomic<int> num_launches{0};
};

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::~Client() = default;

Client& Client::open(const ClientOptions& options) {
  static std::mutex mutex;
  static auto* const clients = new std::map<std::string, Client*>;
  LOCKSTEP_CHECK_VALUE(options.num_cpu_devices > 0,
                       "[xla] there must be one device at least: num_cpu_devices=", options.num_cpu_devices);
  const std::string path = resolve(options.plugin);
  const std::lock_guard lock(mutex);
  auto& client = (*clients)[path];
  if (client == nullptr) client = make(path, options);
  const int open_with = client->state_->num_cpu_devices;
  LOCKSTEP_CHECK_VALUE(client->platform() != kCpu || open_with == options.num_cpu_devices,
                       "[xla] a process opens a plugin once, and this one is open with another number of devices: "
                       "num_cpu_devices=",
                       options.num_cpu_devices, ", open with=", open_with, ", plugin=", path,
                       "; ask for the same number everywhere");
  client->check_options(options.options);
  return *client;
}

void Client::check_options(const PluginOptions& options) const {
  for (const auto& option : options) {
    const auto open_with = state_->options.find(option.first);
    LOCKSTEP_CHECK_VALUE(open_with != state_->options.end() && open_with->second == option.second,
                         "[xla] a process opens a plugin once, and this one is open with other options: asked for ",
                         plugin_options_text({option}), ", open with: ", plugin_options_text(state_->options),
                         "; give client_options to the first initialize_tpu_system");
  }
}

Client* Client::make(const std::string& path, const ClientOptions& options) {
  const Plugin& plugin = Plugin::load(path);
  auto state = std::make_unique<State>(plugin);
  // Before the client starts: a plugin may read the processor model then.
  const HiddenSve hidden_sve = has_own_devices(plugin) ? HiddenSve::No : cure_hidden_sve(plugin.module());
  state->client = create_client(plugin, options.options, options.num_cpu_devices);
  state->platform = plugin.text(Slot::ClientPlatformName, state->client, "client");
  if (state->platform == kCpu) check_known_to_cpu(plugin, options.options);
  state->platform_version = plugin.text(Slot::ClientPlatformVersion, state->client, "client");
  for (auto& [info, handle] : own_devices(plugin, state->client)) {
    state->devices.push_back(std::move(info));
    state->device_handles.push_back(handle);
  }
  state->options = options.options;
  state->num_cpu_devices = options.num_cpu_devices;
  if (state->platform == kCpu) state->hidden_sve = hidden_sve;
  return new Client(std::move(state));
}

const std::string& Client::plugin() const { return state_->plugin.path(); }
std::string Client::api_version() const { return state_->plugin.version(); }
const std::string& Client::platform() const { return state_->platform; }
const std::string& Client::platform_version() const { return state_->platform_version; }
const PluginOptions& Client::options() const { return state_->options; }
const std::vector<DeviceInfo>& Client::devices() const { return state_->devices; }
HiddenSve Client::hidden_sve() const { return state_->hidden_sve; }

Executable Client::compile(const std::string& stablehlo, const std::vector<std::vector<int>>& device_ids, bool exact,
                           const CompilerOptions& options_of_user) const {
  check_device_ids(device_ids);
  LOCKSTEP_CHECK_IMPLEMENTED(
      state_->hidden_sve != HiddenSve::NotCured,
      "[xla compile] this machine hides the SVE of its cores, but the plugin's compiler would use it: "
      "plugin=",
      plugin(), "; use a machine that shows SVE, or another plugin");
  constexpr std::string_view kFormat = "mlir";
  const std::string options = compile_options(device_ids, platform() == "cpu", exact, options_of_user);
  Block<c_api::Program> program;
  program->code = const_cast<char*>(stablehlo.data());
  program->code_size = stablehlo.size();
  program->format = kFormat.data();
  program->format_size = kFormat.size();
  Block<c_api::Compile> block;
  block->client = state_->client;
  block->program = program.get();
  block->options = options.data();
  block->options_size = options.size();
  state_->plugin.call(Slot::ClientCompile, block, "compile");
  return Executable(state_->plugin, state_->num_launches, block->executable);
}

Executable Client::load(const std::string& serialized) const {
  Block<c_api::DeserializeAndLoad> block;
  block->client = state_->client;
  block->bytes = serialized.data();
  block->num_bytes = serialized.size();
  state_->plugin.call(Slot::ExecutableDeserializeAndLoad, block, "load");
  return Executable(state_->plugin, state_->num_launches, block->executable);
}

Buffer Client::upload(const void* data, ElementType type, const std::vector<int64_t>& dims, int device) const {
  LOCKSTEP_CHECK_INDEX(device >= 0 && static_cast<size_t>(device) < state_->device_handles.size(),
                       "[xla upload] there is no such device: device=", device,
                       ", devices=", state_->device_handles.size());
  Block<c_api::BufferFromHost> block;
  block->client = state_->client;
  block->data = data;
  block->type = static_cast<int>(type);
  block->dims = dims.data();
  block->num_dims = dims.size();
  block->semantics = c_api::kImmutableOnlyDuringCall;
  block->device = state_->device_handles[static_cast<size_t>(device)];
  state_->plugin.call(Slot::ClientBufferFromHostBuffer, block, "upload");
  Buffer buffer(state_->plugin, block->buffer);
  state_->plugin.await(block->done_with_host_buffer, "upload");
  return buffer;
}

}  // namespace lockstep::xla
