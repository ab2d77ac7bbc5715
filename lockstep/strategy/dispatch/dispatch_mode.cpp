#include "lockstep/strategy/dispatch/dispatch_mode.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace lockstep::detail {
namespace {

// Libraries are never destroyed: threads may still be calling when a process ends.
torch::Library* new_library(const char* name) {
  return new torch::Library(torch::Library::IMPL, name, kModeKey, __FILE__, __LINE__);
}

/// Everything that is not registered under the key falls through.
torch::Library* let_others_fall_through() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kModeKey)) return nullptr;
  torch::Library* const all = new_library("_");
  all->fallback(torch::CppFunction::makeFallthrough());
  return all;
}

}  // namespace

torch::Library* register_mode_functions(const std::function<void(torch::Library&)>& add) {
  static const auto* const others = let_others_fall_through();
  (void)others;
  torch::Library* const library = new_library("aten");
  add(*library);
  return library;
}

}  // namespace lockstep::detail
