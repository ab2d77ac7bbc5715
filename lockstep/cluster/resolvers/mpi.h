#pragma once

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

namespace lockstep {

/// Workers started by `mpirun`, of Open MPI, of MPICH and its relatives (Hydra, MVAPICH2, Intel MPI), or of PMIx. MPI
/// itself is not needed.
///
/// Launchers say ranks, but not where rank 0 is. Its address is the first that is known of
///   1. LOCKSTEP_COORDINATOR;
///   2. MASTER_ADDR, with MASTER_PORT or else a port made of the launch's id;
///   3. where all ranks are on one machine: 127.0.0.1, and such a port;
///   4. of Open MPI: the machine that mpirun runs on, where rank 0 runs there too, and such a port.
/// Ports made of an id are in 20000 … 32767; another program may have taken one: then give LOCKSTEP_COORDINATOR.
///
/// The constructor throws `ContextError` where ranks or that address are not known, `c10::ValueError` where they are
/// wrong.
class LOCKSTEP_API MPIClusterResolver : public FixedClusterResolver {
 public:
  explicit MPIClusterResolver(const Environment& variables = {});
};

}  // namespace lockstep
