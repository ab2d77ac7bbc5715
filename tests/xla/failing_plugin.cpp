// The plugin for CPUs (FAILING_PLUGIN_OF names its file), whose programs can fail after they have taken over the memory
// of their arguments: for what happens on GPUs and TPUs when memory runs out, or a program fails while it runs.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/xla/pjrt/c_api.h"

namespace {

namespace c_api = lockstep::xla::c_api;
using c_api::Slot;

/// How many executions succeed before one fails; negative for all.
std::atomic<int> executions_until_failure{-1};
std::string failure = "on purpose: out of memory";

std::vector<char> copied_table;
c_api::Function execute_well, tell_message, destroy_error;

c_api::Function& function_of(c_api::Table& table, Slot slot) { return table.functions[static_cast<size_t>(slot)]; }

/// The results of a program that fails stay in memory: how many they are is not known here.
void* execute(void* block) {
  void* error = execute_well(block);
  const bool fails = error == nullptr && executions_until_failure >= 0 && executions_until_failure-- == 0;
  return fails ? &failure : error;
}

void* message(void* block) {
  auto& arguments = *static_cast<c_api::TextOfObject*>(block);
  if (arguments.object != &failure) return tell_message(block);
  arguments.text = failure.data();
  arguments.text_size = failure.size();
  return nullptr;
}

void* destroy(void* block) {
  return static_cast<c_api::OneObject*>(block)->object == &failure ? nullptr : destroy_error(block);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void fail_after_executions(int count) {
  executions_until_failure = count;
}

extern "C" __attribute__((visibility("default"))) const void* GetPjrtApi() {
  void* module = dlopen(std::getenv("FAILING_PLUGIN_OF"), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return nullptr;
  using GetApi = const c_api::Table* (*)();
  const c_api::Table* original = reinterpret_cast<GetApi>(dlsym(module, "GetPjrtApi"))();
  copied_table.resize(original->header.size);
  std::memcpy(copied_table.data(), original, copied_table.size());
  auto& table = *reinterpret_cast<c_api::Table*>(copied_table.data());
  const auto replace = [&](Slot slot, c_api::Function by) { return std::exchange(function_of(table, slot), by); };
  execute_well = replace(Slot::LoadedExecutableExecute, execute);
  tell_message = replace(Slot::ErrorMessage, message);
  destroy_error = replace(Slot::ErrorDestroy, destroy);
  return &table;
}
