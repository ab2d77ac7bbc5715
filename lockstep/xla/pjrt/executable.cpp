#include "lockstep/xla/pjrt/executable.h"

#include <numeric>
#include <utility>

#include <c10/util/SmallVector.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

using c_api::Block;
using c_api::Slot;

namespace {

/// The unloaded executable of a loaded one, which PJRT asks for properties. Owns it.
class ProgramDescription {
 public:
  ProgramDescription(const Plugin& plugin, void* loaded)
      : plugin_(plugin), handle_(plugin.object(Slot::LoadedExecutableGetExecutable, loaded, "executable")) {}
  ProgramDescription(const ProgramDescription&) = delete;
  ProgramDescription& operator=(const ProgramDescription&) = delete;
  ~ProgramDescription() { plugin_.destroy(Slot::ExecutableDestroy, handle_); }

  void* handle() const { return handle_; }

 private:
  const Plugin& plugin_;
  void* handle_;
};

size_t count_results(const Plugin& plugin, void* loaded) {
  const ProgramDescription description(plugin, loaded);
  Block<c_api::SizeOfObject> block;
  block->object = description.handle();
  plugin.call(Slot::ExecutableNumOutputs, block, "compile");
  return block->result;
}

void check_arguments(const std::vector<std::vector<void*>>& arguments) {
  LOCKSTEP_CHECK_VALUE(!arguments.empty(), "[xla execute] a program runs on one device at least: devices=0");
  for (const auto& list : arguments) {
    LOCKSTEP_CHECK_VALUE(list.size() == arguments.front().size(),
                         "[xla execute] every device must get as many arguments as the first: arguments=", list.size(),
                         ", of the first=", arguments.front().size());
  }
}

}  // namespace

Executable::Executable(const Plugin& plugin, std::atomic<int>& launches, void* handle)
    : plugin_(&plugin), launches_(&launches), handle_(handle), num_results_(count_results(plugin, handle)) {}

Executable::Executable(Executable&& other) noexcept
    : plugin_(other.plugin_),
      launches_(other.launches_),
      handle_(std::exchange(other.handle_, nullptr)),
      num_results_(other.num_results_) {}

Executable& Executable::operator=(Executable&& other) noexcept {
  Executable taken(std::move(other));
  std::swap(plugin_, taken.plugin_);
  std::swap(launches_, taken.launches_);
  std::swap(handle_, taken.handle_);
  std::swap(num_results_, taken.num_results_);
  return *this;
}

Executable::~Executable() {
  if (handle_ != nullptr) plugin_->destroy(Slot::LoadedExecutableDestroy, handle_);
}

std::vector<std::vector<Buffer>> Executable::execute(const std::vector<std::vector<void*>>& arguments,
                                                     bool keeps_arguments) const {
  check_arguments(arguments);
  const size_t num_devices = arguments.size();
  c10::SmallVector<void*, 64> handles(num_devices * num_results_, nullptr);
  c10::SmallVector<void* const*, 8> argument_lists;
  c10::SmallVector<void**, 8> result_lists;
  std::vector<std::vector<Buffer>> results(num_devices);
  for (size_t device = 0; device < num_devices; ++device) {
    results[device].reserve(num_results_);
    argument_lists.push_back(arguments[device].data());
    result_lists.push_back(handles.data() + device * num_results_);
  }
  Block<c_api::ExecuteOptions> options;
  options->launch_id = ++*launches_;
  std::vector<int64_t> kept(keeps_arguments ? arguments.front().size() : 0);
  std::iota(kept.begin(), kept.end(), int64_t{0});
  options->kept_arguments = kept.data();
  options->num_kept_arguments = kept.size();
  Block<c_api::Execute> block;
  block->executable = handle_;
  block->options = options.get();
  block->arguments = argument_lists.data();
  block->num_devices = num_devices;
  block->num_arguments = arguments.front().size();
  block->results = result_lists.data();
  plugin_->call(Slot::LoadedExecutableExecute, block, "execute");

  for (size_t device = 0; device < num_devices; ++device) {
    for (size_t i = 0; i < num_results_; ++i) results[device].emplace_back(*plugin_, result_lists[device][i]);
  }
  return results;
}

MemoryUse Executable::memory_use() const {
  const ProgramDescription description(*plugin_, handle_);
  Block<c_api::MemoryStats> block;
  block->executable = description.handle();
  plugin_->call(Slot::ExecutableMemoryStats, block, "memory use");
  return {.code = block->code,
          .arguments = block->arguments,
          .results = block->results,
          .aliased = block->aliased,
          .temporary = block->temporary};
}

std::string Executable::serialized() const {
  const ProgramDescription description(*plugin_, handle_);
  Block<c_api::Serialize> block;
  block->executable = description.handle();
  plugin_->call(Slot::ExecutableSerialize, block, "serialize");
  std::string bytes(block->bytes, block->num_bytes);
  if (block->release != nullptr) block->release(block->owner);
  return bytes;
}

std::string Executable::optimized_program() const {
  const ProgramDescription description(*plugin_, handle_);
  Block<c_api::Program> program;
  Block<c_api::OptimizedProgram> block;
  block->executable = description.handle();
  block->program = program.get();
  // The first call returns the size, the second fills the buffer.
  plugin_->call(Slot::ExecutableOptimizedProgram, block, "optimized program");
  std::string code(program->code_size, '\0');
  program->code = code.data();
  plugin_->call(Slot::ExecutableOptimizedProgram, block, "optimized program");
  return code;
}

}  // namespace lockstep::xla
