#pragma once

#include "lockstep/api.h"
#include "lockstep/xla/pjrt/client.h"

/// The one client of the process.
namespace lockstep::xla {

/// The started client; throws if there is none.
LOCKSTEP_API Client& client();
LOCKSTEP_API bool is_started();
/// Set once, by `start`.
void set_client(Client& client);

}  // namespace lockstep::xla
