#pragma once

namespace lockstep::xla {

/// Some virtual machines hide the vector extension SVE of their Arm cores. XLA's compiler for CPUs goes by the core
/// model and uses SVE nevertheless; its programs then fail with an illegal instruction.
enum class HiddenSve {
  /// This machine has no such core, or does not hide SVE.
  No,
  /// The plugin sees another core model.
  Cured,
  /// The plugin reads the model in an unknown way: its programs would crash the process.
  NotCured,
};

/// Where SVE is hidden, redirects the plugin's reads of /proc/cpuinfo to one with a core without SVE; the rest of the
/// process is unaffected. Call it before the first compilation.
HiddenSve cure_hidden_sve(void* module);

}  // namespace lockstep::xla
