#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

class GroupImpl;
class Rendezvous;

/// Calls the function when all ranks of a group have made an equal call; throws on all of them where one has not.
using AgreeOnCall = std::function<void(const CollectiveCall&, const CommunicationOptions&, c10::function_ref<void()>)>;

/// Makes the group of one rank whose tensors on GPUs go through an engine's own collectives; `host` does everything
/// else: tensors on CPUs, sparse ones, dtypes that the engine lacks, groups within, and reductions that must be
/// deterministic. `local` is the rank's number among those of the process.
LOCKSTEP_API std::shared_ptr<GroupImpl> make_device_group(std::shared_ptr<GroupImpl> host,
                                                          std::shared_ptr<DeviceCollectives> collectives, int local,
                                                          AgreeOnCall agree);

/// The same for all ranks of one process, whose groups are `hosts` and meet at `rendezvous`.
LOCKSTEP_API std::vector<Group> make_local_device_groups(const std::vector<Group>& hosts,
                                                         const std::shared_ptr<Rendezvous>& rendezvous,
                                                         const std::shared_ptr<DeviceCollectives>& collectives);

}  // namespace lockstep::comm
