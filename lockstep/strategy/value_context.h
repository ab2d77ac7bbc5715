#pragma once

#include <ostream>

#include "lockstep/api.h"

namespace lockstep {

/// For which replica `distribute_values_from_function` asks.
struct LOCKSTEP_API ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const ValueContext& context);

}  // namespace lockstep
