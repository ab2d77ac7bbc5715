#pragma once

#include <string_view>

#define LOCKSTEP_SPELL_(x) #x
#define LOCKSTEP_SPELL(x) LOCKSTEP_SPELL_(x)

/// What the program is compiled for, as constants: code for one processor goes behind `if constexpr`, not `#if`.
namespace lockstep::detail {

inline constexpr bool kIsX86 = std::string_view(LOCKSTEP_SPELL(__x86_64__)) == "1";
inline constexpr bool kIsArm = std::string_view(LOCKSTEP_SPELL(__aarch64__)) == "1";

/// Tells the core that this thread spins, so that its sibling or the bus is left in peace.
inline void relax_core() {
  if constexpr (kIsX86) {
    asm volatile("pause" ::: "memory");
  } else if constexpr (kIsArm) {
    asm volatile("yield" ::: "memory");
  }
}

}  // namespace lockstep::detail

#undef LOCKSTEP_SPELL
#undef LOCKSTEP_SPELL_
