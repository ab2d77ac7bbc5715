#include <utility>

#include <c10/util/SmallVector.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/client_state.h"
#include "lockstep/xla/pjrt/program_description.h"

namespace lockstep::xla {

using c_api::Block;
using c_api::Slot;

namespace {

void check_arguments(const std::vector<std::vector<void*>>& arguments) {
  LOCKSTEP_CHECK_VALUE(!arguments.empty(), "[xla execute] a program runs on one device at least: devices=0");
  for (const auto& list : arguments) {
    LOCKSTEP_CHECK_VALUE(list.size() == arguments.front().size(),
                         "[xla execute] every device must get as many arguments as the first: arguments=", list.size(),
                         ", of the first=", arguments.front().size());
  }
}

}  // namespace

Executable::Executable(const Client& client, void* handle, size_t num_results)
    : client_(&client), handle_(handle), num_results_(num_results) {}

Executable::Executable(Executable&& other) noexcept
    : client_(other.client_), handle_(std::exchange(other.handle_, nullptr)), num_results_(other.num_results_) {}

Executable& Executable::operator=(Executable&& other) noexcept {
  Executable taken(std::move(other));
  std::swap(client_, taken.client_);
  std::swap(handle_, taken.handle_);
  std::swap(num_results_, taken.num_results_);
  return *this;
}

Executable::~Executable() {
  if (handle_ != nullptr) client_->state_->plugin.destroy(Slot::kLoadedExecutableDestroy, handle_);
}

std::vector<std::vector<Buffer>> Executable::execute(const std::vector<std::vector<void*>>& arguments) const {
  check_arguments(arguments);
  const auto& state = *client_->state_;
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
  options->launch_id = ++state.num_launches;
  Block<c_api::Execute> block;
  block->executable = handle_;
  block->options = options.get();
  block->arguments = argument_lists.data();
  block->num_devices = num_devices;
  block->num_arguments = arguments.front().size();
  block->results = result_lists.data();
  state.plugin.call(Slot::kLoadedExecutableExecute, block, "execute");

  for (size_t device = 0; device < num_devices; ++device) {
    for (size_t i = 0; i < num_results_; ++i) results[device].emplace_back(*client_, result_lists[device][i]);
  }
  return results;
}

MemoryUse Executable::memory_use() const {
  const Plugin& plugin = client_->state_->plugin;
  const ProgramDescription description(plugin, handle_);
  Block<c_api::MemoryStats> block;
  block->executable = description.handle();
  plugin.call(Slot::kExecutableMemoryStats, block, "memory use");
  return {.code = block->code,
          .arguments = block->arguments,
          .results = block->results,
          .aliased = block->aliased,
          .temporary = block->temporary};
}

std::string Executable::optimized_program() const {
  const Plugin& plugin = client_->state_->plugin;
  const ProgramDescription description(plugin, handle_);
  Block<c_api::Program> program;
  Block<c_api::OptimizedProgram> block;
  block->executable = description.handle();
  block->program = program.get();
  // The first call tells the size, the second fills the room for it.
  plugin.call(Slot::kExecutableOptimizedProgram, block, "optimized program");
  std::string code(program->code_size, '\0');
  program->code = code.data();
  plugin.call(Slot::kExecutableOptimizedProgram, block, "optimized program");
  return code;
}

}  // namespace lockstep::xla
