#pragma once

#include "lockstep/comm/group.h"

namespace lockstep::detail {

/// Internal: collectives of replicas that are traced. On XLA devices a collective is an operation of the program, and
/// no replica waits for another; tensors of the CPU go through `host`, the group whose ranks are threads.
comm::Group traced_group(const comm::Group& host);

}  // namespace lockstep::detail
