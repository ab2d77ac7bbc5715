#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/messages/peer_exchange.h"

namespace lockstep::comm {

/// The tensors of the ranks of one local number, by worker. Those of other workers are on the CPU. A list is empty, and
/// a tensor undefined, where no rank of this worker reads it.
struct ReceivedTensors {
  std::vector<std::vector<at::Tensor>> of_worker;
};

/// Exchanges the inputs of a call that has begun with the ranks of the same local number in other workers. A worker
/// gets what one of its ranks reads, and nothing else.
ReceivedTensors exchange_tensors(PeerExchange& peers, const CollectiveCall& call);

}  // namespace lockstep::comm
