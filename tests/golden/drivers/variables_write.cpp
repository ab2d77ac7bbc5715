#include "tests/golden/drivers.h"

namespace lockstep::golden {

Outcome run_variables_write(const Case&) { return Outcome::not_yet("the driver of variables_write"); }

}  // namespace lockstep::golden
