#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/comm/messages/peer_exchange.h"

namespace lockstep::comm {

/// Concatenates the tensors of one rank into one flat tensor for each dtype, on the rank's device.
LOCKSTEP_API std::vector<at::Tensor> flatten_by_dtype(at::TensorList tensors);
/// Copies the values of tensors from `flatten_by_dtype` back.
LOCKSTEP_API void unflatten_by_dtype(const std::vector<at::Tensor>& flat, at::TensorList tensors);

/// Computes one rank's parts of a reduction over all ranks of all workers, of tensors on devices.
///
/// `local` are the flattened tensors of the worker's own ranks; all device work on them is complete. Each result has
/// the full length and holds the parts that the ranks of this local number reduce in each worker. The other local ranks
/// have the rest (`take_parts`). Values are added in the same tree as on CPUs.
LOCKSTEP_API std::vector<at::Tensor> reduce_parts_on_devices(PeerExchange& peers, const CollectiveCall& call,
                                                             const std::vector<const std::vector<at::Tensor>*>& local);

/// Copies the parts that local rank `from` has reduced into a result.
LOCKSTEP_API void take_parts(const MessageTeam& team, int from, const std::vector<at::Tensor>& theirs,
                             const std::vector<at::Tensor>& result);

}  // namespace lockstep::comm
