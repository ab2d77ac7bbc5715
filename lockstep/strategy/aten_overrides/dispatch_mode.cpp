#include "lockstep/strategy/aten_overrides/dispatch_mode.h"

#include <deque>
#include <mutex>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace lockstep::detail {
namespace {

/// Never destroyed: threads may still call the functions when the process ends.
torch::Library& new_library(const char* name) {
  static std::mutex mutex;
  static auto* const all = new std::deque<torch::Library>;
  const std::lock_guard lock(mutex);
  return all->emplace_back(torch::Library::IMPL, name, kModeKey, __FILE__, __LINE__);
}

/// Lets functions that are not registered under the key fall through.
bool let_others_fall_through() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kModeKey)) return true;
  new_library("_").fallback(torch::CppFunction::makeFallthrough());
  return true;
}

}  // namespace

bool register_mode_functions(const std::function<void(torch::Library&)>& add) {
  static const bool others = let_others_fall_through();
  add(new_library("aten"));
  return others;
}

}  // namespace lockstep::detail
