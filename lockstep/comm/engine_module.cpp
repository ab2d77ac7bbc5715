#include "lockstep/comm/engine_module.h"

#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// Returns the folder of the shared object that holds this function.
std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr;
  LOCKSTEP_ASSERT(found, "the loader does not know where the library lies");
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

/// An engine's own dependencies come first when its symbols are looked up: a LibTorch with a Gloo inside exports that
/// one to everybody. AddressSanitizer and ThreadSanitizer replace functions of the C library, and refuse that order.
int open_flags() {
  const bool sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return RTLD_NOW | RTLD_LOCAL | (sanitized ? 0 : RTLD_DEEPBIND);
}

/// Opens the shared object, for good: its threads and handlers at exit may outlive every transport.
const Engine* open_engine(std::string_view name) {
  const auto file = own_folder() / ("liblockstep_" + std::string(name) + ".so");
  void* module = dlopen(file.c_str(), open_flags() | RTLD_NODELETE);
  LOCKSTEP_CHECK_COLLECTIVE(module != nullptr, "[", name, "] the engine must be beside the library: ", dlerror());
  const auto entry = reinterpret_cast<EngineEntry>(dlsym(module, "lockstep_engine"));
  LOCKSTEP_CHECK_COLLECTIVE(entry != nullptr, "[", name, "] the file must be an engine of lockstep: ", dlerror());
  return entry();
}

}  // namespace

const Engine& load_engine(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, const Engine*, std::less<>> opened;
  const std::lock_guard lock(mutex);
  auto found = opened.find(name);
  if (found == opened.end()) found = opened.emplace(name, open_engine(name)).first;
  return *found->second;
}

EngineState state_of_engine(std::string_view name) {
  try {
    const auto& engine = load_engine(name);
    return {.why_not = engine.why_not(), .remark = engine.remark()};
  } catch (const c10::Error& error) {
    return {.why_not = error.what_without_backtrace(), .remark = ""};
  }
}

}  // namespace lockstep::comm
