#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "lockstep/api.h"

/// Hints for collectives.
///
///     context.all_reduce("sum", gradients, {.bytes_per_pack = 50 << 20, .timeout_seconds = 120.0});
namespace lockstep {

/// Which engine carries a collective between devices. Made from its name too, in any case.
class LOCKSTEP_API CommunicationImplementation {
 public:
  enum Kind {
    /// The fastest that works for the tensors of the call.
    Auto,
    /// Exchange through the memory of CPUs.
    Ring,
    /// NVIDIA's library between GPUs.
    Nccl,
  };

  constexpr CommunicationImplementation(Kind kind) : kind_(kind) {}  // NOLINT: implicit, as an enumerator
  CommunicationImplementation(std::string_view name);                // NOLINT: "ring" is as good as Ring
  CommunicationImplementation(const char* name) : CommunicationImplementation(std::string_view(name)) {}  // NOLINT

  constexpr operator Kind() const { return kind_; }  // NOLINT

  /// Returns "AUTO", "RING" or "NCCL".
  std::string_view name() const;

 private:
  Kind kind_;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, CommunicationImplementation implementation);

struct LOCKSTEP_API CommunicationOptions {
  /// Reductions of many tensors are made in packs: a pack is closed as soon as it is larger than this. 0 makes one pack
  /// of all. Given to a strategy, it is also the size of the buckets in which gradients are sent while backward
  /// computes others; 0 means 25 MiB between GPUs of one process and with NCCL, 4 MiB otherwise. Gradients that
  /// replicas on CPUs read in place (one process, or shared memory) are not packed.
  int64_t bytes_per_pack = 0;
  /// How long a rank waits for the others; without a value the group's limit holds; 0 or less is the largest limit.
  std::optional<double> timeout_seconds = std::nullopt;
  /// Given to a strategy of several workers, it chooses the engine. Given to a call, RING exchanges tensors of GPUs as
  /// copies on the CPU; NCCL is an error where it does not carry the call. The compiler of XLA devices chooses itself.
  CommunicationImplementation implementation = CommunicationImplementation::Auto;
  /// Whether reductions of GPUs have the bits of reductions on CPUs: values are combined in the fixed tree, never by
  /// NCCL's reductions. Between cards that costs more: every rank reads the values of all others. Given to a strategy,
  /// it holds for gradients, too. CPUs are always deterministic.
  bool deterministic = false;

  bool operator==(const CommunicationOptions&) const = default;

  /// Throws c10::ValueError where a field is out of range. Everything that takes options calls it.
  void validate() const;

  /// Returns these options, with the fields of `other` that differ from their defaults in their place.
  CommunicationOptions merge(const CommunicationOptions& other) const;

  /// The limit of one wait, or zero where the group's limit holds.
  std::chrono::milliseconds timeout() const;
  /// The limit of one wait, that of LOCKSTEP_COLLECTIVE_TIMEOUT where these options have none.
  std::chrono::milliseconds timeout_or_default() const;
};

/// Earlier names of the same things.
using CollectiveHints = CommunicationOptions;
using CollectiveCommunication = CommunicationImplementation;

}  // namespace lockstep
