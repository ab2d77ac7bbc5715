#pragma once

#include <cstddef>
#include <span>

namespace lockstep::xla {

/// A function of another shared object, and its replacement.
struct Redirection {
  const char* name;
  void* replacement;
};

/// Makes one opened shared object call the replacements; others are unaffected. Returns the number of relocation slots
/// that were changed.
size_t redirect_imports(void* module, std::span<const Redirection> redirections);

}  // namespace lockstep::xla
