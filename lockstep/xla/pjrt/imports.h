#pragma once

#include <cstddef>
#include <span>

namespace lockstep::xla {

/// A function of another shared object, and what shall be called in its place.
struct Redirection {
  const char* name;
  void* replacement;
};

/// Makes one opened shared object call the replacements; every other one goes on as before. Returns the number of
/// relocation slots that were changed.
size_t redirect_imports(void* module, std::span<const Redirection> redirections);

}  // namespace lockstep::xla
