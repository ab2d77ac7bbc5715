#include "lockstep/strategy/deferred_init.h"

#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace lockstep::detail {
namespace {

/// The C library takes memory of this size from the system at once, zeroed and unused.
constexpr size_t kLargeBytes = size_t{64} << 20;

bool is_large(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.nbytes() >= kLargeBytes;
}

/// In place of a function that fills its first argument with random numbers and returns it.
void draw_unless_large(const c10::OperatorHandle& draw, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t num_arguments = draw.schema().arguments().size();
  const at::Tensor target = torch::jit::peek(*stack, 0, num_arguments).toTensor();
  if (!is_large(target)) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
    draw.callBoxed(stack);
    return;
  }
  torch::jit::drop(*stack, num_arguments);
  torch::jit::push(*stack, target);
}

/// Tells LibTorch what the key does to functions: nothing, but to those that draw.
struct Registration {
  static constexpr auto kKey = c10::DispatchKey::DeferredInit;

  Registration() : drawing(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__) {
    for (const char* draw : {"normal_", "uniform_"}) {
      drawing.impl(draw, torch::CppFunction::makeFromBoxedFunction<&draw_unless_large>());
    }
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) return;
    others.emplace(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    others->fallback(torch::CppFunction::makeFallthrough());
  }

  torch::Library drawing;
  std::optional<torch::Library> others;
};

/// The key is LibTorch's own for modules that are made before their values are.
c10::DispatchKey registered_key() {
  static const Registration registration;
  return Registration::kKey;
}

}  // namespace

SkipLargeDraws::SkipLargeDraws() : guard_(registered_key()) {}

}  // namespace lockstep::detail
