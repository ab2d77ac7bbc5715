#pragma once

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

namespace lockstep {

/// Workers started by `mpirun`, of Open MPI, of MPICH and its relatives (Hydra, MVAPICH2, Intel MPI), or of PMIx. MPI
/// itself is not needed.
///
/// Launchers provide ranks, but not the address of rank 0. It is the first known one of
///   1. LOCKSTEP_COORDINATOR;
///   2. MASTER_ADDR, with MASTER_PORT or else a port derived from the launch's id;
///   3. where all ranks are on one machine: 127.0.0.1, and such a port;
///   4. of Open MPI: the machine that mpirun runs on, where rank 0 runs there too, and such a port.
/// Derived ports are in 20000 … 32767. Set LOCKSTEP_COORDINATOR where another program uses that port.
///
/// The constructor throws `ContextError` where ranks or that address are unknown, `c10::ValueError` where they are
/// invalid.
class LOCKSTEP_API MPIClusterResolver : public FixedClusterResolver {
 public:
  explicit MPIClusterResolver(const Environment& variables = {});
};

}  // namespace lockstep
