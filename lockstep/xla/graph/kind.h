#pragma once

namespace lockstep::xla {

/// The one literal that stands for all literals of this spelling, so that kinds are compared by address. `spelling`
/// lives as long as the process.
const char* interned_kind(const char* spelling);

}  // namespace lockstep::xla
