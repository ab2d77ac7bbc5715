#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/comm/messages/lane.h"

namespace lockstep::comm {

/// The tensors of one rank as one tensor for each dtype, on the rank's device.
LOCKSTEP_API std::vector<at::Tensor> flatten_by_dtype(at::TensorList tensors);
/// Copies the values of such tensors back.
LOCKSTEP_API void unflatten_by_dtype(const std::vector<at::Tensor>& flat, at::TensorList tensors);

/// Makes one rank's parts of a reduction over all ranks of all workers, of tensors on devices.
///
/// `local` are the flattened tensors of the worker's own ranks; all device work on them is done. Each of the results is
/// as long as the whole, and holds this rank's parts: those that the ranks of its number reduce in each worker. The
/// rest comes from the other local ranks (`take_parts`). Values are added in the same tree as on CPUs.
LOCKSTEP_API std::vector<at::Tensor> reduce_parts_on_devices(Lane& lane, const Call& call,
                                                             const std::vector<const std::vector<at::Tensor>*>& local);

/// Copies the parts that local rank `from` has reduced into a result.
LOCKSTEP_API void take_parts(const MessageTeam& team, int from, const std::vector<at::Tensor>& theirs,
                             const std::vector<at::Tensor>& result);

}  // namespace lockstep::comm
