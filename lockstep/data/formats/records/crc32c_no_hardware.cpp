#include "lockstep/data/formats/records/crc32c_impl.h"

namespace lockstep::data::detail {

Crc32cFunction crc32c_by_hardware() { return nullptr; }

}  // namespace lockstep::data::detail
