#include "lockstep/strategy/aten_overrides/skip_draws.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "lockstep/strategy/aten_overrides/dispatch_mode.h"

namespace lockstep::detail {
namespace {

thread_local int skip_depth = 0;

bool is_skipped(const at::Tensor& target) {
  return skip_depth > 0 && target.defined() && target.is_cpu() && target.nbytes() >= kLargeBytes;
}

/// Replaces a function that fills its first argument with random numbers and returns it.
void draw_unless_large(const c10::OperatorHandle& draw, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t num_arguments = draw.schema().arguments().size();
  const at::Tensor target = torch::jit::peek(*stack, 0, num_arguments).toTensor();
  if (!is_skipped(target)) {
    const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
    draw.callBoxed(stack);
    return;
  }
  torch::jit::drop(*stack, num_arguments);
  torch::jit::push(*stack, target);
}

c10::DispatchKey register_draws() {
  [[maybe_unused]] static const bool registered = register_mode_functions([](torch::Library& library) {
    for (const char* draw : {"normal_", "uniform_"}) {
      library.impl(draw, torch::CppFunction::makeFromBoxedFunction<&draw_unless_large>());
    }
  });
  return kModeKey;
}

}  // namespace

SkipLargeDraws::SkipLargeDraws() : guard_(register_draws()) { ++skip_depth; }

SkipLargeDraws::~SkipLargeDraws() { --skip_depth; }

}  // namespace lockstep::detail
