#include "tests/golden/drivers.h"

namespace lockstep::golden {

Outcome run_reduce_gather(const Case&) { return Outcome::not_yet("the driver of reduce_gather"); }

}  // namespace lockstep::golden
