#pragma once

#include <memory>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

/// Makes one group handle for each rank of `rendezvous`; ranks are threads of this process.
///
/// Nothing is copied on the way: ranks lay their tensors open to each other, each reduces its own part over all of them
/// and writes it to all. Tensors may live on the CPU or on CUDA devices.
LOCKSTEP_API std::vector<Group> make_local_groups(const std::shared_ptr<Rendezvous>& rendezvous);

}  // namespace lockstep::comm
