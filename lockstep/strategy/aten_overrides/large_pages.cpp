#include "lockstep/strategy/aten_overrides/large_pages.h"

#include <cstdint>
#include <sys/mman.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "lockstep/strategy/aten_overrides/dispatch_mode.h"

namespace lockstep::detail {
namespace {

constexpr uintptr_t kLargePage = uintptr_t{2} << 20;

thread_local int large_page_depth = 0;

void request_large_pages(const at::Tensor& tensor) {
  const auto first = reinterpret_cast<uintptr_t>(tensor.data_ptr());
  const uintptr_t begin = (first + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t end = (first + tensor.nbytes()) / kLargePage * kLargePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

/// Wraps the function that makes an uninitialized tensor.
void make_in_large_pages(const c10::OperatorHandle& make, c10::DispatchKeySet, torch::jit::Stack* stack) {
  {
    const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
    make.callBoxed(stack);
  }
  const at::Tensor made = torch::jit::peek(*stack, 0, 1).toTensor();
  if (large_page_depth > 0 && made.is_cpu() && made.nbytes() >= kLargeBytes) request_large_pages(made);
}

c10::DispatchKey register_allocation() {
  [[maybe_unused]] static const bool registered = register_mode_functions([](torch::Library& library) {
    library.impl("empty.memory_format", torch::CppFunction::makeFromBoxedFunction<&make_in_large_pages>());
  });
  return kModeKey;
}

}  // namespace

LargePages::LargePages() : guard_(register_allocation()) { ++large_page_depth; }

LargePages::~LargePages() { --large_page_depth; }

}  // namespace lockstep::detail
