#include "lockstep/base/crc32c_impl.h"

namespace lockstep::detail {

Crc32cFunction crc32c_by_hardware() { return nullptr; }

}  // namespace lockstep::detail
