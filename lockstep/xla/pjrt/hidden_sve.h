#pragma once

namespace lockstep::xla {

/// Some virtual machines hide the vector extension SVE of their Arm cores, and XLA's compiler for CPUs does not notice:
/// it goes by the model of the core, and its programs die of an illegal instruction.
enum class HiddenSve {
  /// This machine has no such core, or shows what it has.
  kNo,
  /// The plugin was shown another model.
  kCured,
  /// The plugin reads the model in a way that we do not know: what it compiles would kill the process.
  kNotCured,
};

/// Shows an opened plugin, and nothing else in the process, a /proc/cpuinfo with a core that has no SVE, where one is
/// needed. To be called before its first compilation.
HiddenSve cure_hidden_sve(void* module);

}  // namespace lockstep::xla
