#include "lockstep/comm/transport/engine_module.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// An engine that may have been built, and what it needs.
struct KnownModule {
  std::string_view name;
  std::string_view not_built;
  /// Whether a launcher must have started the process.
  bool needs_mpi_launcher = false;
};
constexpr std::array kKnownModules{
    KnownModule{"gloo", "built without Gloo; install libgloo-dev and build again"},
    KnownModule{"mpi", "built without MPI; install libopenmpi-dev and build again", true},
    KnownModule{"nccl", "built without NCCL; use a LibTorch with CUDA, install NCCL's headers and build again"},
};

/// Environment variables that launchers of MPI programs (Open MPI, MPICH and its relatives, Slurm with PMIx) set.
constexpr std::array kMpiLauncherVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD"};

const KnownModule& known_module(std::string_view name) {
  const auto* const found = std::find_if(kKnownModules.begin(), kKnownModules.end(),
                                         [&](const KnownModule& module) { return module.name == name; });
  LOCKSTEP_ASSERT(found != kKnownModules.end(), "engine=", name);
  return *found;
}

/// Returns the folder of the shared object that holds this function.
std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr;
  LOCKSTEP_ASSERT(found, "the loader does not know the path of the library");
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

/// The folder is looked up once: the loader may know a path that is relative to the folder the process started in.
std::filesystem::path file_of(std::string_view name) {
  static const std::filesystem::path folder = own_folder();
  const bool stands_in = name == "nccl" && env::flag("LOCKSTEP_NCCL_STANDIN");
  return folder / ("liblockstep_" + std::string(name) + (stands_in ? "_standin" : "") + ".so");
}

/// Returns why the engine's file cannot be opened; empty if it is there.
std::string missing_file(const KnownModule& module) {
  std::error_code ignored;
  const std::filesystem::path file = file_of(module.name);
  return std::filesystem::exists(file, ignored)
             ? ""
             : std::string(module.not_built) + " (there is no " + file.string() + ")";
}

std::string missing_launcher(const KnownModule& module) {
  const bool started = std::any_of(kMpiLauncherVariables.begin(), kMpiLauncherVariables.end(),
                                   [](const char* variable) { return std::getenv(variable) != nullptr; });
  return started || !module.needs_mpi_launcher ? "" : "this process was not started by mpirun or srun";
}

/// The engine's own dependencies come first in symbol lookup: a LibTorch that contains Gloo exports its symbols.
/// AddressSanitizer and ThreadSanitizer replace functions of the C library and refuse RTLD_DEEPBIND.
int open_flags() {
  const bool sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return RTLD_NOW | RTLD_LOCAL | (sanitized ? 0 : RTLD_DEEPBIND);
}

/// Never closes the shared object: its threads and exit handlers may outlive every transport.
const EngineModule* open_module(std::string_view name) {
  void* module = dlopen(file_of(name).c_str(), open_flags() | RTLD_NODELETE);
  LOCKSTEP_CHECK_COLLECTIVE(module != nullptr, "[", name, "] the engine must be beside the library: ", dlerror());
  const auto entry = reinterpret_cast<EngineEntry>(dlsym(module, "lockstep_engine"));
  LOCKSTEP_CHECK_COLLECTIVE(entry != nullptr, "[", name, "] the file must be an engine of lockstep: ", dlerror());
  return entry();
}

/// The engines that this process has opened.
struct OpenedModules {
  std::mutex mutex;
  std::map<std::string, const EngineModule*, std::less<>> by_name;
};

OpenedModules& opened_modules() {
  static OpenedModules instance;
  return instance;
}

bool is_open(std::string_view name) {
  OpenedModules& opened = opened_modules();
  const std::lock_guard lock(opened.mutex);
  return opened.by_name.contains(name);
}

}  // namespace

const EngineModule& load_engine(std::string_view name) {
  OpenedModules& opened = opened_modules();
  const std::lock_guard lock(opened.mutex);
  auto found = opened.by_name.find(name);
  if (found == opened.by_name.end()) found = opened.by_name.emplace(name, open_module(name)).first;
  return *found->second;
}

EngineState state_of_engine(std::string_view name) {
  try {
    const auto& engine = load_engine(name);
    return {.why_not = engine.why_not(), .remark = engine.remark()};
  } catch (const c10::Error& error) {
    return {.why_not = error.what_without_backtrace()};
  }
}

EngineState try_engine(std::string_view name) {
  const KnownModule& known = known_module(name);
  if (!is_open(name)) {
    if (std::string reason = missing_file(known); !reason.empty()) return {.why_not = std::move(reason)};
  }
  if (std::string reason = missing_launcher(known); !reason.empty()) return {.why_not = std::move(reason)};
  return state_of_engine(name);
}

std::shared_ptr<Transport> make_transport(std::string_view engine, Job& job, const TransportOptions& options) {
  const KnownModule& known = known_module(engine);
  const std::string no_file = is_open(engine) ? "" : missing_file(known);
  LOCKSTEP_CHECK_IMPLEMENTED(no_file.empty(), "[", engine, "] ", no_file, ": transport=", options.name,
                             ", lanes=", options.num_lanes, ", workers=", job.num_workers());
  const std::string reason = missing_launcher(known);
  LOCKSTEP_CHECK_COLLECTIVE(reason.empty(), "[", engine,
                            "] all workers must be processes of one MPI program: worker=", job.name(job.worker()), "; ",
                            reason);
  return load_engine(engine).make_transport(job, options);
}

}  // namespace lockstep::comm
