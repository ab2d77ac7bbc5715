#pragma once

#include <span>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::comm {

/// One engine that can carry collectives between ranks.
struct LOCKSTEP_API Engine {
  std::string_view name;
  /// What the ranks of its groups are, in words.
  std::string_view ranks;
  /// Kinds of device whose tensors it takes.
  std::string_view devices;
  bool available = false;
  /// Why it cannot be used in this process; empty where it can.
  std::string_view why_not;
  /// Its version and special properties; may be empty.
  std::string_view remark;
};

/// Returns all engines that lockstep knows, usable or not. The first call tries them all.
LOCKSTEP_API std::span<const Engine> engines();

/// Returns the engine of that name; c10::ValueError lists the known ones. Tries that one only.
LOCKSTEP_API Engine find_engine(std::string_view name);

}  // namespace lockstep::comm
