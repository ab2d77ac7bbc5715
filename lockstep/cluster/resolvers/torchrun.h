#pragma once

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

namespace lockstep {

/// Workers started by `torchrun`, or by anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// (LOCAL_RANK and LOCAL_WORLD_SIZE where known).
///
/// Only the address of worker 0 is known: LOCKSTEP_COORDINATOR where set, else MASTER_ADDR and MASTER_PORT. Where
/// torchrun itself listens on that port (TORCHELASTIC_USE_AGENT_STORE=True, its default), it is the port after it.
///
/// The constructor throws `ContextError` where variables are missing and `c10::ValueError` where they are invalid.
class LOCKSTEP_API TorchrunClusterResolver : public FixedClusterResolver {
 public:
  explicit TorchrunClusterResolver(const Environment& variables = {});
};

}  // namespace lockstep
