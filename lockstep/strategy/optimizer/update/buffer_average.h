#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

/// Internal: buffers such as the statistics of batch normalization, which are averaged over replicas at every step.
namespace lockstep::detail {

/// Inside a collective: averages the published buffers, each by one replica for all. `buffers` are those of the replica
/// with the rank `reader` among `all`.
LOCKSTEP_API void average_published_buffers(const std::vector<at::Tensor>& buffers, int reader,
                                            const AllGradients& all);

/// Collective over the group: averages the buffers that have not been averaged where they are published; all of them
/// where `published` is false.
LOCKSTEP_API void average_other_buffers(const comm::Group& group, const std::vector<at::Tensor>& buffers,
                                        bool published);

}  // namespace lockstep::detail
