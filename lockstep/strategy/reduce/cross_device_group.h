#pragma once

#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep {
class CrossDeviceOps;
}

namespace lockstep::comm {
class Rendezvous;
}

namespace lockstep::detail {

/// Returns the group of one replica whose reductions of dense tensors are `ops.batch_reduce` of all replicas' tensors.
/// The first rank calls it, while the others wait. An error is thrown on all ranks. `host` does everything else; its
/// ranks meet at `rendezvous`.
comm::Group cross_device_group(const comm::Group& host, std::shared_ptr<comm::Rendezvous> rendezvous,
                               std::shared_ptr<const CrossDeviceOps> ops);

}  // namespace lockstep::detail
