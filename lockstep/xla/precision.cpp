#include "lockstep/xla/precision.h"

#include <atomic>
#include <string_view>

#include <ATen/Context.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "lockstep/device/debug_info_kind.h"

namespace lockstep::xla {
namespace {

constexpr std::string_view kNarrowName = "lockstep products";

const auto kNarrowKind = lockstep::detail::debug_info_kind(0xC6, &kNarrowName);

/// How many scopes there are in this process.
std::atomic<int> num_narrow_scopes{0};

struct NarrowInfo final : c10::DebugInfoBase {
  explicit NarrowInfo(bool narrows_) : narrows(narrows_) {}
  const bool narrows;
};

}  // namespace

bool uses_full_precision() { return !at::globalContext().allowTF32CuBLAS(); }

bool narrows_products() {
  if (num_narrow_scopes.load(std::memory_order_relaxed) == 0) return false;
  const auto* info = static_cast<const NarrowInfo*>(c10::ThreadLocalDebugInfo::get(kNarrowKind));
  return info != nullptr && info->narrows;
}

struct NarrowProductsScope::Guard {
  explicit Guard(bool narrows) : set(kNarrowKind, std::make_shared<NarrowInfo>(narrows)) {}

  c10::DebugInfoGuard set;
};

NarrowProductsScope::NarrowProductsScope(bool narrows) : guard_(std::make_unique<Guard>(narrows)) {
  num_narrow_scopes.fetch_add(1, std::memory_order_relaxed);
}

NarrowProductsScope::~NarrowProductsScope() { num_narrow_scopes.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace lockstep::xla
