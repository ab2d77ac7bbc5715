#include "lockstep/xla/pjrt/plugin.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/process_variable.h"
#include "lockstep/xla/pjrt/find_plugin.h"

namespace lockstep::xla {
namespace {

using c_api::Block;
using c_api::Slot;

// c_api.h describes all versions since 0.40 except 0.56, whose table has another order.
constexpr int kOldestMinor = 40;
constexpr int kRearrangedMinor = 56;

/// Sets a variable unless the user has set it.
void set_default(const char* name, const char* value) {
  if (std::getenv(name) == nullptr) set_process_variable(name, value);
}

/// Sets variables that plugins read when they are opened.
void prepare_environment() {
  set_default("TF_CPP_MIN_LOG_LEVEL", "2");  // errors, but no warnings
  // Without chips, libtpu would poll the metadata server of a cloud machine.
  if (!has_tpu_chips()) set_default("TPU_SKIP_MDS_QUERY", "1");
}

std::string version_text(const c_api::Table& table) { return c10::str(table.version.major, ".", table.version.minor); }

const c_api::Table* table_of(const std::string& path, void* module) {
  using GetApi = const c_api::Table* (*)();
  const auto get_api = reinterpret_cast<GetApi>(dlsym(module, "GetPjrtApi"));
  LOCKSTEP_CHECK_VALUE(get_api != nullptr, "[xla plugin] the file must be a PJRT plugin: plugin=", path,
                       " has no function GetPjrtApi");
  const c_api::Table* table = get_api();
  LOCKSTEP_CHECK_VALUE(table != nullptr, "[xla plugin] the plugin has no table of functions: plugin=", path);
  const auto& version = table->version;
  LOCKSTEP_CHECK_VALUE(
      version.major == 0 && version.minor >= kOldestMinor && version.minor != kRearrangedMinor,
      "[xla plugin] the version of the plugin's interface must be 0.40 or later, and not 0.56: plugin=", path,
      ", version=", version_text(*table));
  return table;
}

}  // namespace

Plugin::Plugin(std::string path, void* module, const c_api::Table* table)
    : path_(std::move(path)), module_(module), table_(table) {}

Plugin Plugin::open(const std::string& path) {
  LOCKSTEP_CHECK_VALUE(std::filesystem::exists(path), "[xla plugin] the file must exist: plugin=", path, "; ",
                       how_to_get_a_plugin());
  prepare_environment();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  LOCKSTEP_CHECK_VALUE(module != nullptr,
                       "[xla plugin] the file must be a shared object of this processor: plugin=", path, " (",
                       dlerror(), ")");
  Plugin plugin(path, module, table_of(path, module));
  Block<c_api::NoArguments> initialize;
  plugin.call(Slot::PluginInitialize, initialize, "plugin");
  return plugin;
}

const Plugin& Plugin::load(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed: threads of plugins may call them after main.
  static auto* const loaded = new std::map<std::string, Plugin>;
  const std::lock_guard lock(mutex);
  auto found = loaded->find(path);
  if (found == loaded->end()) found = loaded->emplace(path, open(path)).first;
  return found->second;
}

std::string Plugin::version() const { return version_text(*table_); }

bool Plugin::has(Slot slot) const {
  const size_t end = offsetof(c_api::Table, functions) + (static_cast<size_t>(slot) + 1) * sizeof(c_api::Function);
  return end <= table_->header.size && table_->functions[static_cast<size_t>(slot)] != nullptr;
}

c_api::Function Plugin::function(Slot slot, const char* operation) const {
  LOCKSTEP_CHECK_IMPLEMENTED(has(slot), "[xla ", operation, "] the plugin lacks a function: plugin=", path_,
                             ", version=", version(), ", function=", static_cast<size_t>(slot), "; take a newer one");
  return table_->functions[static_cast<size_t>(slot)];
}

std::string Plugin::text(Slot slot, const void* object, const char* operation) const {
  Block<c_api::TextOfObject> block;
  block->object = object;
  call(slot, block, operation);
  return std::string(block->text, block->text_size);
}

void* Plugin::object(Slot slot, void* object, const char* operation) const {
  Block<c_api::ObjectOfObject> block;
  block->object = object;
  call(slot, block, operation);
  return block->result;
}

void Plugin::raise(void* error, const char* operation) const {
  if (error == nullptr) return;
  // ErrorMessage returns void, although the table declares a result.
  Block<c_api::TextOfObject> message;
  message->object = error;
  function(Slot::ErrorMessage, operation)(message.get());
  const std::string text(message->text, message->text_size);
  destroy(Slot::ErrorDestroy, error);
  LOCKSTEP_CHECK_AS(c10::Error, false, "[xla ", operation, "] ", text);
}

void Plugin::await(void* event, const char* operation) const {
  if (event == nullptr) return;
  Block<c_api::OneObject> block;
  block->object = event;
  void* const error = function(Slot::EventAwait, operation)(block.get());
  destroy(Slot::EventDestroy, event);
  raise(error, operation);
}

void Plugin::destroy(Slot slot, void* object) const noexcept {
  if (object == nullptr || !has(slot)) return;
  Block<c_api::OneObject> block;
  block->object = object;
  void* const error = table_->functions[static_cast<size_t>(slot)](block.get());
  // ErrorDestroy returns void. Errors of other functions are dropped: a destructor cannot report them.
  if (slot != Slot::ErrorDestroy && error != nullptr) destroy(Slot::ErrorDestroy, error);
}

}  // namespace lockstep::xla
