#include "tests/golden/drivers.h"

namespace lockstep::golden {

Outcome run_replica_context(const Case&) { return Outcome::not_yet("the driver of replica_context"); }

}  // namespace lockstep::golden
